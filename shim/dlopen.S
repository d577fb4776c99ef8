/*
 * dlopen.S: our dlopen, for the sake of one flag. A library opened with RTLD_DEEPBIND binds past every preload; deepbind.c hears of it and may take
 * the flag away. The call itself is a jump: where a library is searched, and in which namespace, depends on who calls.
 */
#define RTLD_DEEPBIND 8

#if defined(__x86_64__)
    .text
    .globl cuplug_dlopen, cuplug_dlopen_first
    .type cuplug_dlopen, %function
    .type cuplug_dlopen_first, %function
    .symver cuplug_dlopen, dlopen@@GLIBC_2.34, remove /* libcuplug.map.in says why */
    .symver cuplug_dlopen_first, dlopen@GLIBC_2.2.5, remove
    .p2align 4
cuplug_dlopen:
cuplug_dlopen_first:
    endbr64
    testl $RTLD_DEEPBIND, %esi
    jne 2f
1:  movq cuplug_real_dlopen(%rip), %rax
    testq %rax, %rax
    je 3f
    jmpq *%rax
2:  pushq %rdi                          /* (name, flags) -> flags */
    call cuplug_deepbind_flags
    movl %eax, %esi
    popq %rdi
    jmp 1b
3:  pushq %rdi                          /* first call: find the real dlopen */
    pushq %rsi
    subq $8, %rsp
    call cuplug_deepbind_real_dlopen
    addq $8, %rsp
    popq %rsi
    popq %rdi
    jmpq *%rax
#elif defined(__aarch64__)
    .text
    .globl cuplug_dlopen, cuplug_dlopen_first
    .type cuplug_dlopen, %function
    .type cuplug_dlopen_first, %function
    .symver cuplug_dlopen, dlopen@@GLIBC_2.34, remove /* libcuplug.map.in says why */
    .symver cuplug_dlopen_first, dlopen@GLIBC_2.17, remove
    .p2align 4
cuplug_dlopen:
cuplug_dlopen_first:
    hint #34                            /* bti c */
    tbnz w1, #3, 2f
1:  adrp x16, cuplug_real_dlopen
    ldr x16, [x16, #:lo12:cuplug_real_dlopen]
    cbz x16, 3f
    br x16
2:  stp x29, x30, [sp, #-32]!           /* (name, flags) -> flags */
    str x0, [sp, #16]
    mov x29, sp
    bl cuplug_deepbind_flags
    mov w1, w0
    ldr x0, [sp, #16]
    ldp x29, x30, [sp], #32
    b 1b
3:  stp x29, x30, [sp, #-32]!           /* first call: find the real dlopen */
    stp x0, x1, [sp, #16]
    mov x29, sp
    bl cuplug_deepbind_real_dlopen
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    br x16
#endif
    .section .note.GNU-stack, "", %progbits
