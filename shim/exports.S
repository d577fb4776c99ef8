/*
 * exports.S: the symbols by which programs find us, each a jump to its wrapper. Made from hooks.def. A jump keeps the return address, so
 * a wrapper still sees who called.
 */
#if defined(__x86_64__)
#define LANDING endbr64
#define JUMP jmp
#elif defined(__aarch64__)
#define LANDING hint #34 /* bti c */
#define JUMP b
#else
#error "cuplug supports x86-64 and aarch64"
#endif

#define RUNTIME_HOOK(export, wrapper) .globl export; .type export, %function; .p2align 4; export: LANDING; JUMP wrapper; .size export, .-export;
#define HOOK(export, asked, version, stream, wrapper) RUNTIME_HOOK(export, wrapper)

    .text
#include "hooks.def"
    .section .note.GNU-stack, "", %progbits
