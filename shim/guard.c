/*
 * guard.c: see guard.h. No state. The unwinder's functions are looked up in the very object that calls the personality routine,
 * as a process may hold several and a context of one means nothing to another.
 */
#include "guard.h"

#include "lookup.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unwind.h>

int cuplug_guard_frame(void (*body)(void *argument), void *argument, void **exception) __attribute__((visibility("hidden")));
extern const char cuplug_guard_landing[] __attribute__((visibility("hidden")));

/* In the object that holds `address`. */
static void *symbol_beside(const void *address, const char *name) {
    Dl_info object;
    void *handle = dladdr(address, &object) ? dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *found = handle ? cuplug_lookup_real_dlsym()(handle, name) : NULL;

    if (handle)
        dlclose(handle); /* whoever threw keeps it */
    return found;
}

/* What the unwinder asks of our frame. */
__attribute__((visibility("hidden"))) _Unwind_Reason_Code cuplug_guard_personality(int version, _Unwind_Action actions,
                                                                                   _Unwind_Exception_Class class,
                                                                                   struct _Unwind_Exception *exception,
                                                                                   struct _Unwind_Context *context) {
    const void *unwinder = __builtin_extract_return_addr(__builtin_return_address(0));
    void (*set_register)(struct _Unwind_Context *, int, _Unwind_Word) = symbol_beside(unwinder, "_Unwind_SetGR");
    void (*set_address)(struct _Unwind_Context *, _Unwind_Ptr) = symbol_beside(unwinder, "_Unwind_SetIP");

    (void)class;
    if (version != 1 || (actions & _UA_FORCE_UNWIND) || !set_register ||
        !set_address) /* a thread's end passes; an unknown unwinder too */
        return _URC_CONTINUE_UNWIND;
    if (actions & _UA_SEARCH_PHASE)
        return _URC_HANDLER_FOUND;
    set_register(context, __builtin_eh_return_data_regno(0), (_Unwind_Word)(uintptr_t)exception);
    set_address(context, (_Unwind_Ptr)(uintptr_t)cuplug_guard_landing);
    return _URC_INSTALL_CONTEXT;
}

/* Ends the exception as a catch (...) would: its C++ runtime counts those in flight. */
static void end(struct _Unwind_Exception *exception, char *what, size_t room) {
    const char *class =
        (const char *)&exception->exception_class; /* "GNUCC++" or "CLNGC++" and how it was thrown, the last byte first */
    bool cxx = memcmp(class + 1, "++CCUNG", 7) == 0 || memcmp(class + 1, "++CGNLC", 7) == 0;
    const void *runtime = (const void *)(uintptr_t)exception->exception_cleanup;
    void *(*begin_catch)(void *) = NULL;
    const void *const *(*current_type)(void) = NULL;
    void (*end_catch)(void) = NULL;
    const char *name = NULL;

    if (cxx && runtime) {
        begin_catch = symbol_beside(runtime, "__cxa_begin_catch");
        end_catch = symbol_beside(runtime, "__cxa_end_catch");
        current_type = symbol_beside(runtime, "__cxa_current_exception_type");
    }
    snprintf(what, room, "an exception");
    if (!begin_catch || !end_catch) {
        if (runtime)
            exception->exception_cleanup(_URC_FOREIGN_EXCEPTION_CAUGHT, exception);
        return;
    }
    begin_catch(exception);
    if (current_type && current_type())
        name = current_type()[1]; /* std::type_info: its table, then the name, after a '*' if it is local to its object */
    if (name)
        snprintf(what, room, "%s", name + (*name == '*'));
    end_catch();
}

bool cuplug_guard(void (*body)(void *argument), void *argument, char *what, size_t room) {
    void *exception = NULL;

    if (!cuplug_guard_frame(body, argument, &exception))
        return true;
    end(exception, what, room);
    return false;
}
