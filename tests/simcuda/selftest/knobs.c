/* knobs.c — the SIMCUDA_ environment does what knobs.c of the simulator says. Runs itself with each setting. */
#include "selftest.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

static void *driver_library(void) {
    return dlopen("libcuda.so.1", RTLD_NOW);
}

static int has(const char *name) {
    return dlsym(driver_library(), name) != NULL;
}

typedef CUresult (*look_up_fn)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

static void *asked(const char *name, int version, cuuint64_t flags) {
    look_up_fn look_up;
    void *p = NULL;
    *(void **)&look_up = dlsym(driver_library(), "cuGetProcAddress_v2");
    return look_up && look_up(name, &p, version, flags, NULL) == CUDA_SUCCESS ? p : NULL;
}

static bool variants(void) {
    return asked("cuMemAlloc", 3020, 0) == dlsym(driver_library(), "cuMemAlloc_v2") &&
           asked("cuMemAlloc", 2000, 0) == dlsym(driver_library(), "cuMemAlloc") &&
           asked("cuMemAllocAsync", 11020, 1) == dlsym(driver_library(), "cuMemAllocAsync") &&
           asked("cuMemAllocAsync", 11020, 2) == dlsym(driver_library(), "cuMemAllocAsync_ptsz") &&
           asked("cuMemcpyHtoD", 7000, 2) == dlsym(driver_library(), "cuMemcpyHtoD_v2_ptds") &&
           asked("cuGetProcAddress", 11030, 0) == dlsym(driver_library(), "cuGetProcAddress") &&
           asked("cuGetProcAddress", 12000, 0) == dlsym(driver_library(), "cuGetProcAddress_v2") &&
           asked("cuCtxCreate", 11000, 0) == dlsym(driver_library(), "cuCtxCreate_v2") &&
           asked("cuCtxCreate", 11040, 0) == dlsym(driver_library(), "cuCtxCreate_v3") &&
           asked("cuMemAllocAsync", 11010, 0) == NULL && asked("cuNothing", 12000, 0) == NULL;
}

static void exit_call(void) {
    CUresult (*free_)(CUdeviceptr);
    *(void **)&free_ = dlsym(driver_library(), "cuMemFree_v2");
    _exit(free_(0) == CUDA_ERROR_DEINITIALIZED ? 0 : 1);
}

/* One setting, looked at from inside. */
static int inside(const char *what) {
    CUdeviceptr a, b, c;
    size_t f, total = 0;
    int version = 0, count = 0;
    if (strcmp(what, "exit") == 0)
        atexit(exit_call); /* before the driver's own handler, so it runs after */
    start(0);
    cuDriverGetVersion(&version);
    cuDeviceGetCount(&count);
    cuMemGetInfo(&f, &total);
    if (strcmp(what, "plain") == 0)
        return !(version == 13000 && count == 1 && total == (size_t)16 << 30 && has("cuCtxRecordEvent") && variants() &&
                 !has("cuFuture007"));
    if (strcmp(what, "11020") == 0)
        return !(version == 11020 && !has("cuGetProcAddress") && !has("cuGetProcAddress_v2") && has("cuMemAllocAsync"));
    if (strcmp(what, "11080") == 0)
        return !(version == 11080 && has("cuGetProcAddress") && !has("cuGetProcAddress_v2") && !has("cuCtxGetId"));
    if (strcmp(what, "12020") == 0)
        return !(version == 12020 && has("cuGetProcAddress_v2") && has("cuCtxGetId") && !has("cuCtxRecordEvent") &&
                 !asked("cuCtxRecordEvent", 12020, 0));
    if (strcmp(what, "99000") == 0)
        return !(asked("cuFuture199", 99000, 1 << 20) && has("cuFuture007") && !asked("cuFuture200", 99000, 0));
    if (strcmp(what, "machine") == 0)
        return !(count == 3 && total == (size_t)64 << 20 && cuMemAlloc(&a, (size_t)60 << 20) == CUDA_SUCCESS &&
                 cuMemAlloc(&b, (size_t)8 << 20) == CUDA_ERROR_OUT_OF_MEMORY);
    if (strcmp(what, "fail") == 0)
        return !(cuMemAlloc(&a, 1) == CUDA_SUCCESS && cuMemAlloc(&b, 1) == CUDA_ERROR_OUT_OF_MEMORY && b == 0 &&
                 cuMemAlloc(&c, 1) == CUDA_ERROR_OUT_OF_MEMORY && cuMemAlloc(&c, 1) == CUDA_SUCCESS &&
                 cuMemFree(c) == CUDA_ERROR_UNKNOWN);
    if (strcmp(what, "delay") == 0) {
        double t0 = now_ms();
        cuMemAlloc(&a, 1);
        return !(now_ms() - t0 >= 30);
    }
    if (strcmp(what, "plain-managed") == 0 || strcmp(what, "basic") == 0) {
        bool basic = strcmp(what, "basic") == 0;
        CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE}, host = {.type = CU_MEM_LOCATION_TYPE_HOST};
        CUresult want = basic ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
        int concurrent = -1, managed = -1;
        cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0);
        cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 0);
        return !(concurrent == !basic && managed == 1 && cuMemAllocManaged(&a, 4096, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS &&
                 cuMemAdvise(a, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device) == want &&
                 cuMemAdvise(a, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host) == CUDA_SUCCESS &&
                 cuMemPrefetchAsync(a, 4096, device, 0, NULL) == want);
    }
    if (strcmp(what, "log") == 0) {
        cuMemAlloc(&a, 4096);
        return cuMemFree(a + 1) != CUDA_ERROR_INVALID_VALUE;
    }
    return 0;
}

static int run(const char *self, const char *what, const char *variable, const char *value) {
    int status = -1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (variable)
            setenv(variable, value, 1);
        if (strcmp(what, "machine") == 0)
            setenv("SIMCUDA_DEVICES", "3", 1);
        if (strcmp(what, "crash") == 0)
            what = "exit";
        execl(self, self, what, (char *)NULL);
        _exit(99);
    }
    waitpid(pid, &status, 0);
    return status;
}

static bool log_has(const char *path, const char *start_) {
    char line[600];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof(line), file))
        found |= strncmp(line, start_, strlen(start_)) == 0;
    if (file)
        fclose(file);
    return found;
}

int main(int argc, char **argv) {
    if (argc > 1)
        return inside(argv[1]);
    static const char *const drivers[] = {"11020", "11080", "12020", "99000"};
    check(run(argv[0], "plain", NULL, NULL) == 0, "no knobs: driver 13.0, one device of 16 GiB, variants by version");
    for (int i = 0; i < 4; i++) {
        char what[64];
        snprintf(what, sizeof(what), "SIMCUDA_DRIVER=%s", drivers[i]);
        check(run(argv[0], drivers[i], "SIMCUDA_DRIVER", drivers[i]) == 0, what);
    }
    check(run(argv[0], "machine", "SIMCUDA_MEMORY", "64M") == 0, "SIMCUDA_DEVICES and SIMCUDA_MEMORY");
    check(run(argv[0], "fail", "SIMCUDA_FAIL", "cuMemAlloc_v2:2-3=2,cuMemFree_v2:1=999") == 0, "SIMCUDA_FAIL");
    check(run(argv[0], "delay", "SIMCUDA_DELAY", "cuMemAlloc_v2=30000") == 0, "SIMCUDA_DELAY");
    check(run(argv[0], "plain-managed", NULL, NULL) == 0, "managed memory with concurrent access");
    check(run(argv[0], "basic", "SIMCUDA_MANAGED", "basic") == 0, "SIMCUDA_MANAGED=basic: without");
    char log[] = "/tmp/simcuda-log-XXXXXX";
    int fd = mkstemp(log);
    check(run(argv[0], "log", "SIMCUDA_LOG", log) == 0, "SIMCUDA_LOG");
    check(log_has(log, "cuMemAlloc_v2 size=4096 -> 0 0x") && log_has(log, "cuMemFree_v2 ptr=0x"), "… says what was called");
    close(fd);
    unlink(log);
    check(run(argv[0], "exit", NULL, NULL) == 0, "after exit handlers the driver is deinitialised");
    int status = run(argv[0], "crash", "SIMCUDA_EXIT", "crash");
    check(WIFSIGNALED(status), "SIMCUDA_EXIT=crash: and deadly");
    return finish();
}
