/*
 * others.h: who else may use device memory: network cards and the host, by peer-to-peer mappings. No fence orders them, so while there may be any, a block
 * is handed out only once its old work is done.
 */
#ifndef CUPLUG_OTHERS_H
#define CUPLUG_OTHERS_H

/* Somebody marked memory for that. Returns once every block that was handed out behind a device wait is done waiting. */
void cuplug_others_seen(void);

/* Looks whether a library that does so is loaded by now. Once for each segment; no driver call. */
void cuplug_others_look(void);

#endif
