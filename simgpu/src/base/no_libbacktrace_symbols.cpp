#include <dlfcn.h>

#include "base/symbols.hpp"

namespace simgpu {

std::vector<Symbol> symbols_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) return {};
  return {{readable(info.dli_sname), "", 0}};
}

}  // namespace simgpu
