// A CUDA runtime and driver without a GPU, for PyTorch's caching allocator: they hand out addresses and count bytes.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>
#include <map>

namespace {
constexpr size_t kAlignment = 2 << 20;
size_t capacity = 0;
size_t used = 0;
bool descending = false;
unsigned long long next_address = 0x7F0000000000ull;
std::map<unsigned long long, size_t> sizes; // of segments by address, of mapped memory by handle
unsigned long long next_handle = 1;
cudaError_t last = cudaSuccess;

bool take(size_t nbytes) {
  if (used + nbytes > capacity) return false;
  used += nbytes;
  return true;
}

void give_back(unsigned long long key) {
  used -= sizes.at(key);
  sizes.erase(key);
}

unsigned long long reserve(size_t nbytes) {
  nbytes = (nbytes + kAlignment - 1) / kAlignment * kAlignment;
  unsigned long long before = next_address;
  next_address = descending ? before - nbytes : before + nbytes;
  return descending ? next_address : before;
}

CUresult address_reserve(CUdeviceptr* address, size_t nbytes, size_t, CUdeviceptr, unsigned long long) {
  *address = reserve(nbytes);
  return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* handle, size_t nbytes, const CUmemAllocationProp*, unsigned long long) {
  if (!take(nbytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = next_handle++;
  sizes[*handle] = nbytes;
  return CUDA_SUCCESS;
}
CUresult release(CUmemGenericAllocationHandle handle) {
  give_back(handle);
  return CUDA_SUCCESS;
}
CUresult attribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}
CUresult granularity(size_t* nbytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *nbytes = kAlignment;
  return CUDA_SUCCESS;
}
CUresult error_string(CUresult, const char** text) {
  *text = "error";
  return CUDA_SUCCESS;
}
CUresult nothing() { return CUDA_SUCCESS; }
CUresult unsupported() { return CUDA_ERROR_NOT_SUPPORTED; }

void* entry_point(const char* name) {
  struct { const char* name; void* function; } known[] = {
      {"cuMemAddressReserve", (void*)address_reserve}, {"cuMemCreate", (void*)create},
      {"cuMemRelease", (void*)release}, {"cuDeviceGetAttribute", (void*)attribute},
      {"cuMemGetAllocationGranularity", (void*)granularity}, {"cuGetErrorString", (void*)error_string},
      {"cuMemAddressFree", (void*)nothing}, {"cuMemMap", (void*)nothing}, {"cuMemUnmap", (void*)nothing},
      {"cuMemSetAccess", (void*)nothing}, {"cuDeviceGet", (void*)nothing}};
  for (auto& each : known)
    if (!strcmp(name, each.name)) return each.function;
  return (void*)unsupported;
}
} // namespace

extern "C" {
void start_driver(size_t nbytes, bool falls) {
  capacity = nbytes;
  descending = falls;
}
void unused() { abort(); } // every other function of the runtime

cudaError_t cudaMalloc(void** pointer, size_t nbytes) {
  if (!take(nbytes)) return last = cudaErrorMemoryAllocation;
  unsigned long long address = reserve(nbytes);
  sizes[address] = nbytes;
  *pointer = (void*)address;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  give_back((unsigned long long)pointer);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = capacity - used;
  *total = capacity;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  memset(properties, 0, sizeof *properties);
  properties->totalGlobalMem = capacity;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* num) {
  *num = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetLastError() {
  cudaError_t error = last;
  last = cudaSuccess;
  return error;
}
const char* cudaGetErrorName(cudaError_t) { return "error"; }
const char* cudaGetErrorString(cudaError_t) { return "error"; }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* result) {
  *function = entry_point(name);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// NVML, which the allocator asks who else uses the GPU.
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
  *device = nullptr;
  return 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType() { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return 3; }
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* num, void*) {
  *num = 0;
  return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = CUDA_VERSION;
  return 0;
}
int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return 0; }
}
