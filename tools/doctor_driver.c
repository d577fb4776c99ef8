/*
 * doctor_driver.c: loads the driver as a program would and asks it for its version, its devices and the entry points that cuplug
 * builds on.
 */
#include "doctor.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

/* The driver's own signatures, so that the command builds without CUDA's headers. */
typedef int (*plain_function)(unsigned);
typedef int (*number_function)(int *);
typedef int (*name_function)(char *, int, int);
typedef int (*error_function)(int, const char **);

/* CUDA_VISIBLE_DEVICES is the usual reason for seeing no device. */
static const char *visible(char *text, size_t room) {
    const char *devices = getenv("CUDA_VISIBLE_DEVICES");

    if (devices)
        snprintf(text, room, " (CUDA_VISIBLE_DEVICES=%s)", devices);
    return devices ? text : "";
}

static void check_devices(void *driver) {
    plain_function initialise = (plain_function)dlsym(driver, "cuInit");
    number_function count_devices = (number_function)dlsym(driver, "cuDeviceGetCount");
    name_function get_name = (name_function)dlsym(driver, "cuDeviceGetName");
    error_function get_error = (error_function)dlsym(driver, "cuGetErrorString");
    int error = initialise ? initialise(0) : -1, count = 0;
    char hint[200];

    if (error == 0 && count_devices)
        error = count_devices(&count);
    if (error != 0) {
        const char *meaning = NULL;

        if (get_error)
            get_error(error, &meaning);
        cuplug_doctor_say(CUPLUG_PROBLEM, "gpu", "the driver cannot be used: %s (%d)%s", meaning ? meaning : "cuInit failed",
                          error, visible(hint, sizeof hint));
        return;
    }
    if (count == 0)
        cuplug_doctor_say(CUPLUG_PROBLEM, "gpu", "none visible%s", visible(hint, sizeof hint));
    for (int i = 0; i < count; i++) {
        char name[128] = "";

        if (get_name)
            get_name(name, sizeof name, i);
        cuplug_doctor_say(CUPLUG_OK, "gpu", "%d: %s", i, *name ? name : "(no name)");
    }
}

static void check_entry_points(void *driver) {
    if (dlsym(driver, "cuCtxRecordEvent") && dlsym(driver, "cuCtxWaitEvent"))
        cuplug_doctor_say(CUPLUG_OK, "fence", "available (cuCtxRecordEvent, cuCtxWaitEvent)");
    else
        cuplug_doctor_say(CUPLUG_NOTE, "fence",
                          "not available (drivers before 12.5 lack cuCtxRecordEvent): frees wait, once for a batch of them");
}

void cuplug_doctor_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    struct link_map *map = NULL;
    number_function get_version;
    int version = 0;

    if (!driver) {
        cuplug_doctor_say(CUPLUG_PROBLEM, "driver",
                          "not found: %s (programs here cannot use CUDA; cuplug stays out of their way)", dlerror());
        return;
    }
    dlinfo(driver, RTLD_DI_LINKMAP, &map);
    get_version = (number_function)dlsym(driver, "cuDriverGetVersion");
    if (!get_version || get_version(&version) != 0)
        version = 0;
    cuplug_doctor_say(CUPLUG_OK, "driver", "%s, CUDA %d.%d", map ? map->l_name : "libcuda.so.1", version / 1000,
                      version % 1000 / 10);
    check_entry_points(driver);
    check_devices(driver); /* the driver stays loaded: it does not like to be unloaded */
}
