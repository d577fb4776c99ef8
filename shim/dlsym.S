/*
 * dlsym.S: our dlsym. It must be invisible: what RTLD_NEXT and RTLD_DEFAULT mean depends on who calls, which the C library reads off the
 * return address, so everything but a name of hooks.def under a real handle is tail-jumped to the real dlsym with registers and stack untouched.
 * cuplug_real_dlsym is NULL until the first call; cuplug_lookup_real_dlsym() fills it. cuplug_lookup_wants(name) reads only our table.
 */
#if defined(__x86_64__)
    .text
    .globl cuplug_dlsym, cuplug_dlsym_first
    .type cuplug_dlsym, %function
    .type cuplug_dlsym_first, %function
    .symver cuplug_dlsym, dlsym@@GLIBC_2.34, remove /* libcuplug.map.in says why */
    .symver cuplug_dlsym_first, dlsym@GLIBC_2.2.5, remove
    .p2align 4
cuplug_dlsym:
cuplug_dlsym_first:
    endbr64
    movq cuplug_real_dlsym(%rip), %rax
    testq %rax, %rax
    je 3f
1:  leaq 1(%rdi), %rcx                  /* RTLD_DEFAULT is 0 and RTLD_NEXT -1, so 1 and 0 here */
    cmpq $1, %rcx
    jbe 2f
    testq %rsi, %rsi
    je 2f
    cmpb $'c', (%rsi)
    jne 2f
    cmpb $'u', 1(%rsi)
    je 4f
2:  jmpq *%rax
3:  pushq %rdi                          /* first call: find the real dlsym */
    pushq %rsi
    subq $8, %rsp
    call cuplug_lookup_real_dlsym
    addq $8, %rsp
    popq %rsi
    popq %rdi
    jmp 1b
4:  pushq %rdi                          /* "cu…": one of ours? */
    pushq %rsi
    subq $8, %rsp
    movq %rsi, %rdi
    call cuplug_lookup_wants
    addq $8, %rsp
    popq %rsi
    popq %rdi
    testl %eax, %eax
    jne cuplug_lookup_dlsym
    movq cuplug_real_dlsym(%rip), %rax
    jmpq *%rax
#elif defined(__aarch64__)
    .text
    .globl cuplug_dlsym, cuplug_dlsym_first
    .type cuplug_dlsym, %function
    .type cuplug_dlsym_first, %function
    .symver cuplug_dlsym, dlsym@@GLIBC_2.34, remove /* libcuplug.map.in says why */
    .symver cuplug_dlsym_first, dlsym@GLIBC_2.17, remove
    .p2align 4
cuplug_dlsym:
cuplug_dlsym_first:
    hint #34                            /* bti c */
    adrp x16, cuplug_real_dlsym
    ldr x16, [x16, #:lo12:cuplug_real_dlsym]
    cbz x16, 3f
1:  add x17, x0, #1                     /* RTLD_DEFAULT is 0 and RTLD_NEXT -1, so 1 and 0 here */
    cmp x17, #1
    b.ls 2f
    cbz x1, 2f
    ldrb w17, [x1]
    cmp w17, #'c'
    b.ne 2f
    ldrb w17, [x1, #1]
    cmp w17, #'u'
    b.eq 4f
2:  br x16
3:  stp x29, x30, [sp, #-32]!           /* first call: find the real dlsym */
    stp x0, x1, [sp, #16]
    mov x29, sp
    bl cuplug_lookup_real_dlsym
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    b 1b
4:  stp x29, x30, [sp, #-32]!           /* "cu…": one of ours? */
    stp x0, x1, [sp, #16]
    mov x29, sp
    mov x0, x1
    bl cuplug_lookup_wants
    mov w17, w0
    ldp x0, x1, [sp, #16]
    ldp x29, x30, [sp], #32
    cbnz w17, 5f
    adrp x16, cuplug_real_dlsym
    ldr x16, [x16, #:lo12:cuplug_real_dlsym]
    br x16
5:  b cuplug_lookup_dlsym
#endif
    .section .note.GNU-stack, "", %progbits
