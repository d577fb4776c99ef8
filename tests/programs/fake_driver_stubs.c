/*
 * One stand-in per symbol of the shim's table, so that the fake driver has them all and grows with the table. Weak: fake_driver.c
 * brings better ones. Compiled without cuda.h, as every stand-in has the same form.
 */
void fake_called(const char *symbol);

#define RUNTIME_HOOK(export, wrapper)
#define HOOK(export, asked, version, stream, wrapper)                                                                            \
    int export(void);                                                                                                            \
    __attribute__((weak)) int export(void) {                                                                                     \
        fake_called(#export);                                                                                                    \
        return 1; /* CUDA_ERROR_INVALID_VALUE */                                                                                 \
    }
#include "shim/hooks.def"
#undef HOOK
#undef RUNTIME_HOOK
