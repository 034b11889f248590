#include <cstdlib>

#include "memory/upstream.hpp"

namespace lockstep {

void* HostUpstream::allocate(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  return std::aligned_alloc(page, (bytes + page - 1) / page * page);
}

void HostUpstream::deallocate(void* data, std::size_t) noexcept { std::free(data); }

}  // namespace lockstep
