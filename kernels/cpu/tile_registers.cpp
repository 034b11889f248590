#include "cpu/tile_registers.hpp"

#include <cstdlib>
#include <string_view>

#include "cpu/loops.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lockstep::cpu_kernels {
namespace {

bool is_switched_off() {
  const char* const wanted = std::getenv("LOCKSTEP_CPU_AMX");
  return wanted && std::string_view(wanted) == "0";
}

/// Linux grants the tiles' 8 KiB of state to processes that ask for it, since version 5.16
/// (Documentation/arch/x86/xstate.rst).
bool is_granted() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

bool find() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return std::string_view(isa_name()) == "avx512" && __builtin_cpu_supports("avx512bf16") &&
         machine_has_tile_registers() && !is_switched_off() && is_granted();
#else
  return false;
#endif
}

}  // namespace

bool machine_has_tile_registers() {
#if defined(__x86_64__)
  // Leaf 7: bits 22, bf16, and 24, tiles, of edx. Not every compiler knows them by name.
  constexpr unsigned wanted = 1u << 22 | 1u << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & wanted) == wanted;
#else
  return false;
#endif
}

bool has_tile_registers() {
  static const bool has = find();
  return has;
}

}  // namespace lockstep::cpu_kernels
