#include "cpu/library_isa.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep::cpu_kernels {
namespace {

struct Name {
  const char* name;
  LibraryIsa isa;
};
constexpr Name below_avx512[] = {
    {"SSE41", LibraryIsa::sse41},    {"AVX", LibraryIsa::avx},          {"AVX2", LibraryIsa::avx2},
    {"AVX2_VNNI", LibraryIsa::avx2}, {"AVX2_VNNI_2", LibraryIsa::avx2},
};

LibraryIsa of_machine() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx")) return LibraryIsa::sse41;
  if (!__builtin_cpu_supports("avx2")) return LibraryIsa::avx;
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return has_avx512 ? LibraryIsa::avx512_core : LibraryIsa::avx2;
#else
  return LibraryIsa::sse41;
#endif
}

/// What a variable allows; of what oneDNN does not know it takes no notice.
LibraryIsa allowed() {
  for (const char* variable : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* const text = std::getenv(variable);
    if (!text || !*text) continue;
    std::string wanted = text;
    std::ranges::transform(wanted, wanted.begin(),
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const auto* const found =
        std::ranges::find(below_avx512, std::string_view(wanted), &Name::name);
    if (found != std::end(below_avx512)) return found->isa;
    break;
  }
  return LibraryIsa::avx512_core;
}

std::mutex mutex;
std::optional<LibraryIsa> limit;
bool is_in_use = false;

}  // namespace

const char* name_of(LibraryIsa isa) {
  if (isa == LibraryIsa::avx512_core) return "AVX512_CORE";
  return std::ranges::find(below_avx512, isa, &Name::isa)->name;
}

LibraryIsa library_isa() { return std::min(of_machine(), allowed()); }

bool limit_library_isa(LibraryIsa isa) {
  const std::lock_guard lock(mutex);
  const LibraryIsa own = limit.value_or(library_isa());
  if (is_in_use) return own <= isa;
  limit = std::min(own, isa);
  return true;
}

std::optional<LibraryIsa> begin_library() {
  const std::lock_guard lock(mutex);
  is_in_use = true;
  return limit;
}

}  // namespace lockstep::cpu_kernels
