#include "kernels/modules.hpp"

#include <algorithm>

#include <link.h>

namespace simgpu {
namespace {

struct Search {
  std::uintptr_t address;
  Module found;
};

int visit(dl_phdr_info* info, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  Module module{.begin = ~std::uintptr_t{0}};
  // The program itself has no name here.
  module.path = *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type == PT_LOAD) {
      const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
      module.begin = std::min(module.begin, begin);
      module.end = std::max(module.end, begin + header.p_memsz);
    } else if (header.p_type == PT_TLS && info->dlpi_tls_data) {
      module.own_begin = reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data);
      module.own_bytes = header.p_memsz;
    }
  }
  if (!module.holds(search.address)) return 0;
  search.found = module;
  return 1;
}

}  // namespace

Module module_of(const void* address) {
  Search search{reinterpret_cast<std::uintptr_t>(address), {}};
  dl_iterate_phdr(visit, &search);
  return search.found;
}

}  // namespace simgpu
