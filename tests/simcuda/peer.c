/*
 * peer.c — access between devices. One address space plays all devices, so access is granted in name only; what must
 * hold is the bookkeeping and its errors.
 */
#include "sim.h"

static bool valid(CUdevice device) {
    return device >= 0 && device < sim.devices;
}

CUresult sim_cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device) || !valid(peer))
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device, CUdevice peer) {
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(device) || !valid(peer) || device == peer)
        return CUDA_ERROR_INVALID_DEVICE;
    *value = attribute != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    return CUDA_SUCCESS;
}

static CUresult change(CUcontext handle, bool enable) {
    sim_lock();
    struct sim_ctx *ctx, *peer = sim_ctx_check(handle);
    CUresult r = sim_current(&ctx);
    if (r == CUDA_SUCCESS && (!peer || !peer->live))
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS && peer->device == ctx->device)
        r = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (r == CUDA_SUCCESS) {
        unsigned bit = 1u << peer->device;
        if (enable && (ctx->peers & bit))
            r = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
        else if (!enable && !(ctx->peers & bit))
            r = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
        else
            ctx->peers ^= bit;
    }
    return sim_unlock_return(r);
}

CUresult sim_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    return flags ? CUDA_ERROR_INVALID_VALUE : change(peer, true);
}

CUresult sim_cuCtxDisablePeerAccess(CUcontext peer) {
    return change(peer, false);
}
