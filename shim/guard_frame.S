/*
 * guard_frame.S: the frame that exceptions end at: int cuplug_guard_frame(void (*body)(void *), void *argument, void **exception)
 * calls body(argument) and returns 0. When the personality routine (guard.c) accepts an exception, the unwinder restores this
 * frame's registers and jumps to cuplug_guard_landing with the exception in the first data register: then *exception is set and 1
 * returned.
 */
#if defined(__x86_64__)
    .text
    .globl cuplug_guard_frame, cuplug_guard_landing
    .hidden cuplug_guard_frame, cuplug_guard_landing
    .type cuplug_guard_frame, %function
    .p2align 4
cuplug_guard_frame:
    .cfi_startproc
    .cfi_personality 0x1b, cuplug_guard_personality
    endbr64
    pushq %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset %rbx, -16
    movq %rdx, %rbx
    movq %rdi, %rax
    movq %rsi, %rdi
    call *%rax
    xorl %eax, %eax
1:  popq %rbx
    .cfi_remember_state
    .cfi_def_cfa_offset 8
    ret
    .cfi_restore_state
cuplug_guard_landing:
    endbr64
    movq %rax, (%rbx)
    movl $1, %eax
    jmp 1b
    .cfi_endproc
    .size cuplug_guard_frame, . - cuplug_guard_frame
#elif defined(__aarch64__)
    .text
    .globl cuplug_guard_frame, cuplug_guard_landing
    .hidden cuplug_guard_frame, cuplug_guard_landing
    .type cuplug_guard_frame, %function
    .p2align 4
cuplug_guard_frame:
    .cfi_startproc
    .cfi_personality 0x1b, cuplug_guard_personality
    hint #34                            /* bti c */
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    str x19, [sp, #16]
    .cfi_offset x19, -16
    mov x29, sp
    mov x19, x2
    mov x9, x0
    mov x0, x1
    blr x9
    mov w0, #0
1:  ldr x19, [sp, #16]
    .cfi_remember_state
    .cfi_restore x19
    ldp x29, x30, [sp], #32
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_restore_state
cuplug_guard_landing:
    hint #36                            /* bti j */
    str x0, [x19]
    mov w0, #1
    b 1b
    .cfi_endproc
    .size cuplug_guard_frame, . - cuplug_guard_frame
#endif
    .section .note.GNU-stack, "", %progbits
