#include "kernels/dynamic_memory.hpp"

#include <cstring>
#include <new>

#include <sys/mman.h>

namespace simgpu {
namespace {

constexpr std::size_t mapped_bytes = DynamicMemory::most_bytes + 2 * DynamicMemory::margin_bytes;

}  // namespace

DynamicMemory::DynamicMemory() {
  void* const mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(mapped) + margin_bytes;
}

DynamicMemory::~DynamicMemory() { munmap(data_ - margin_bytes, mapped_bytes); }

void DynamicMemory::start_block(std::size_t bytes) {
  bytes_ = bytes;
  std::memset(data_, 0xFF, bytes);
}

}  // namespace simgpu
