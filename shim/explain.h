/*
 * explain.h: with CUPLUG_LOG=info or more, a process that ends without an intercepted allocation says why; otherwise nobody could tell.
 */
#ifndef CUPLUG_EXPLAIN_H
#define CUPLUG_EXPLAIN_H

/* At exit. Makes no driver call. */
void cuplug_explain(void);

#endif
