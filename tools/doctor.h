/*
 * doctor.h: the parts of `cuplug doctor` and the one way in which they speak.
 */
#ifndef CUPLUG_DOCTOR_H
#define CUPLUG_DOCTOR_H

#include <stdbool.h>

enum cuplug_finding { CUPLUG_OK, CUPLUG_NOTE, CUPLUG_PROBLEM };

/* Prints "<finding> <topic>: …" and remembers that there was a problem. */
void cuplug_doctor_say(enum cuplug_finding finding, const char *topic, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Loads the driver into this process, as a program would, and asks it. */
void cuplug_doctor_driver(void);

/* Reads the program's file (through the interpreters of scripts); runs nothing. */
void cuplug_doctor_program(const char *name);

/* Reads what a running process has mapped. `library` is where ours is. */
void cuplug_doctor_process(const char *pid);

#endif
