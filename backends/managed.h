/*
 * managed.h: managed memory as the source of another cache's segments.
 */
#ifndef CUPLUG_MANAGED_H
#define CUPLUG_MANAGED_H

struct cuplug_policy;

/* Makes a policy take managed memory, under the defaults of the backend managed; what each device took is counted together. */
void cuplug_managed_source(struct cuplug_policy *policy);

#endif
