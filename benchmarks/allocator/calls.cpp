// Calls read from stdin, answered by PyTorch's caching allocator. Arguments: bytes of the GPU, and 1 for addresses that
// fall. Calls: "malloc ID BYTES STREAM", "free ID" and "empty_cache". Printed: the most bytes requested, allocated and
// reserved, retries, the number of the call that failed or -1, and what is allocated and reserved at the end.

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/PeerToPeerAccess.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <unordered_map>

extern "C" void start_driver(size_t nbytes, bool falls);

int main(int, char** arguments) {
  start_driver(strtoull(arguments[1], nullptr, 10), arguments[2][0] == '1');
  c10::cuda::detail::init_p2p_access_cache(1);
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  allocator->init(1);
  std::unordered_map<long, void*> live;
  std::string call;
  long id, stream, position = -1, failed_at = -1;
  size_t nbytes;
  try {
    for (; std::cin >> call;) {
      ++position;
      if (call == "malloc" && std::cin >> id >> nbytes >> stream) {
        live[id] = allocator->raw_alloc_with_stream(nbytes, (cudaStream_t)stream);
      } else if (call == "free" && std::cin >> id) {
        allocator->raw_delete(live.at(id));
        live.erase(id);
      } else if (call == "empty_cache") {
        allocator->emptyCache();
      } else {
        return 2;
      }
    }
  } catch (const c10::OutOfMemoryError&) {
    failed_at = position;
  }
  auto stats = allocator->getDeviceStats(0);
  printf("%lld %lld %lld %lld %ld %lld %lld\n", (long long)stats.requested_bytes[0].peak,
      (long long)stats.allocated_bytes[0].peak, (long long)stats.reserved_bytes[0].peak,
      (long long)stats.num_alloc_retries, failed_at, (long long)stats.allocated_bytes[0].current,
      (long long)stats.reserved_bytes[0].current);
  fflush(stdout);
  _exit(0); // what is alive has no memory to give back
}
