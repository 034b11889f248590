#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

#include "kernels/kernel_findings.hpp"
#include "kernels/kernel_runner.hpp"
#include "kernels/watching.hpp"
#include "simgpu/kernel_language.hpp"

/// @file
/// What the compiler calls in .cu files: they are compiled for the thread sanitizer and for checks
/// of array bounds, but linked with these functions instead of the sanitizers' runtimes.

namespace {

using simgpu::AccessKind;

/// The place in the kernel that calls a hook. A macro: in a function, it would be that one's
/// caller.
#define SIMGPU_PLACE __builtin_return_address(0)

SIMGPU_ALWAYS_INLINE void on_access(const void* data, unsigned bytes, AccessKind kind,
                                    const void* place, bool is_volatile = false) {
  simgpu::KernelRunner* const by = simgpu::watching;
  if (!by) return;
  by->access({.address = reinterpret_cast<std::uintptr_t>(data),
              .bytes = bytes,
              .kind = kind,
              .is_volatile = is_volatile,
              .place = place});
}

/// Threads that wait for others come here again and again.
SIMGPU_ALWAYS_INLINE void on_poll(const volatile void* data, unsigned bytes, const void* place) {
  if (simgpu::KernelRunner* const by = simgpu::polled)
    by->poll({reinterpret_cast<std::uintptr_t>(data), bytes, place});
}

void found_misaligned(const void* data, unsigned bytes, AccessKind kind, const void* place) {
  const simgpu::WatchScope off(nullptr);
  const std::string does = kind == AccessKind::read ? "reads " : "writes ";
  simgpu::found_misaligned(does + std::to_string(bytes) + " bytes", data, bytes, place);
}

/// An access that the GPU makes as a whole. The compiler joins two of 8 bytes to one of 16; those
/// of vectors it checks by their types (on_alignment).
SIMGPU_ALWAYS_INLINE void on_whole_access(const void* data, unsigned bytes, AccessKind kind,
                                          const void* place, bool is_volatile = false) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (address % (bytes < 8 ? bytes : 8) != 0 && simgpu::watching &&
      !simgpu::watching->is_own(address)) [[unlikely]] {
    found_misaligned(data, bytes, kind, place);
    simgpu::watching->stop(cudaErrorMisalignedAddress);
  }
  if (is_volatile && kind == AccessKind::read) on_poll(data, bytes, place);
  on_access(data, bytes, kind, place, is_volatile);
}

void on_range(const void* data, std::size_t bytes, AccessKind kind, const void* place) {
  if (!simgpu::watching) return;
  const auto* at = static_cast<const char*>(data);
  for (; bytes > 16; bytes -= 16, at += 16) on_access(at, 16, kind, place);
  if (bytes > 0) on_access(at, static_cast<unsigned>(bytes), kind, place);
}

/// A thread sanitizer's function for one size, of which the compiler asks several kinds.
#define SIMGPU_ACCESS(bytes)                                             \
  void __tsan_read##bytes(void* data) {                                  \
    on_whole_access(data, bytes, AccessKind::read, SIMGPU_PLACE);        \
  }                                                                      \
  void __tsan_write##bytes(void* data) {                                 \
    on_whole_access(data, bytes, AccessKind::write, SIMGPU_PLACE);       \
  }                                                                      \
  void __tsan_unaligned_read##bytes(void* data) {                        \
    on_access(data, bytes, AccessKind::read, SIMGPU_PLACE);              \
  }                                                                      \
  void __tsan_unaligned_write##bytes(void* data) {                       \
    on_access(data, bytes, AccessKind::write, SIMGPU_PLACE);             \
  }                                                                      \
  void __tsan_volatile_read##bytes(void* data) {                         \
    on_whole_access(data, bytes, AccessKind::read, SIMGPU_PLACE, true);  \
  }                                                                      \
  void __tsan_volatile_write##bytes(void* data) {                        \
    on_whole_access(data, bytes, AccessKind::write, SIMGPU_PLACE, true); \
  }                                                                      \
  void __tsan_unaligned_volatile_read##bytes(void* data) {               \
    on_access(data, bytes, AccessKind::read, SIMGPU_PLACE, true);        \
  }                                                                      \
  void __tsan_unaligned_volatile_write##bytes(void* data) {              \
    on_access(data, bytes, AccessKind::write, SIMGPU_PLACE, true);       \
  }

/// Atomics of the host's code in these files, and of kernels that use the compiler's own.
#define SIMGPU_FETCH(bits, type, operation)                                                   \
  type __tsan_atomic##bits##_fetch_##operation(volatile type* data, type value, int) {        \
    on_poll(data, sizeof(type), SIMGPU_PLACE);                                                \
    on_access(const_cast<const type*>(data), sizeof(type), AccessKind::atomic, SIMGPU_PLACE); \
    return __atomic_fetch_##operation(data, value, __ATOMIC_SEQ_CST);                         \
  }
#define SIMGPU_EXCHANGE_IF(bits, type, strength)                                              \
  bool __tsan_atomic##bits##_compare_exchange_##strength(volatile type* data, type* expected, \
                                                         type value, int, int) {              \
    on_poll(data, sizeof(type), SIMGPU_PLACE);                                                \
    on_access(const_cast<const type*>(data), sizeof(type), AccessKind::atomic, SIMGPU_PLACE); \
    return __atomic_compare_exchange_n(data, expected, value, false, __ATOMIC_SEQ_CST,        \
                                       __ATOMIC_SEQ_CST);                                     \
  }
#define SIMGPU_ATOMICS(bits, type)                                                                 \
  type __tsan_atomic##bits##_load(const volatile type* data, int) {                                \
    on_poll(data, sizeof(type), SIMGPU_PLACE);                                                     \
    on_access(const_cast<const type*>(data), sizeof(type), AccessKind::read, SIMGPU_PLACE, true);  \
    return __atomic_load_n(data, __ATOMIC_SEQ_CST);                                                \
  }                                                                                                \
  void __tsan_atomic##bits##_store(volatile type* data, type value, int) {                         \
    on_access(const_cast<const type*>(data), sizeof(type), AccessKind::write, SIMGPU_PLACE, true); \
    __atomic_store_n(data, value, __ATOMIC_SEQ_CST);                                               \
  }                                                                                                \
  type __tsan_atomic##bits##_exchange(volatile type* data, type value, int) {                      \
    on_poll(data, sizeof(type), SIMGPU_PLACE);                                                     \
    on_access(const_cast<const type*>(data), sizeof(type), AccessKind::atomic, SIMGPU_PLACE);      \
    return __atomic_exchange_n(data, value, __ATOMIC_SEQ_CST);                                     \
  }                                                                                                \
  SIMGPU_FETCH(bits, type, add)                                                                    \
  SIMGPU_FETCH(bits, type, sub)                                                                    \
  SIMGPU_FETCH(bits, type, and)                                                                    \
  SIMGPU_FETCH(bits, type, or)                                                                     \
  SIMGPU_FETCH(bits, type, xor)                                                                    \
  SIMGPU_EXCHANGE_IF(bits, type, strong)                                                           \
  SIMGPU_EXCHANGE_IF(bits, type, weak)

/// What the compiler tells about an array that is indexed past its end.
struct SourcePlace {
  const char* file;
  std::uint32_t line;
  std::uint32_t column;
};
struct TypeName {
  std::uint16_t kind;
  std::uint16_t info;
  char text[1];
};
struct OutOfBounds {
  SourcePlace place;
  const TypeName* array;
  const TypeName* index;
};

/// What it tells about an access that does not fit its type: one at an address that is no multiple
/// of the alignment, or, where that is not given, one that leaves the object which its pointer was
/// made of.
struct Mismatch {
  SourcePlace place;
  const TypeName* type;
  unsigned char log_alignment;
  unsigned char kind;

  std::uintptr_t alignment() const { return std::uintptr_t{1} << log_alignment; }
};

void on_object(const Mismatch& data, const void* address) {
  const simgpu::WatchScope off(nullptr);
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  simgpu::found_index(std::string("access to ") + data.type->text + " at " + text +
                      ", past the end of its array, at " + data.place.file + ":" +
                      std::to_string(data.place.line));
}

/// "reads", by Mismatch::kind; null of what touches a member alone, which may be aligned by itself.
/// A reference, such as a copy is made from, stands for what goes through it: that is not checked
/// again.
const char* text_of_kind(unsigned char kind) {
  constexpr const char* texts[] = {"reads ", "writes ", "uses "};
  return kind < std::size(texts) ? texts[kind] : nullptr;
}

void found_misaligned(const Mismatch& data, std::uintptr_t address, const void* place) {
  const simgpu::WatchScope off(nullptr);
  simgpu::found_misaligned(text_of_kind(data.kind) + std::string(data.type->text),
                           reinterpret_cast<const void*>(address), data.alignment(), place);
}

/// The compiler may make a vector's access in pieces, each of which is aligned. It places a
/// thread's own variables as the processor likes it, which says nothing of a GPU. Watched or not.
void on_alignment(const Mismatch& data, std::uintptr_t address, const void* place) {
  simgpu::KernelRunner* const by = simgpu::polled;
  if (!by || !text_of_kind(data.kind) || by->is_own(address)) return;
  found_misaligned(data, address, place);
  by->stop(cudaErrorMisalignedAddress);
}

void on_index(const OutOfBounds& data, std::uintptr_t index) {
  const simgpu::WatchScope off(nullptr);
  const std::string what = "index " + std::to_string(static_cast<std::intptr_t>(index)) + " of " +
                           data.array->text + " at " + data.place.file + ":" +
                           std::to_string(data.place.line);
  simgpu::found_index(what);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

SIMGPU_ACCESS(1)
SIMGPU_ACCESS(2)
SIMGPU_ACCESS(4)
SIMGPU_ACCESS(8)
SIMGPU_ACCESS(16)

void __tsan_read_range(void* data, std::size_t bytes) {
  on_range(data, bytes, AccessKind::read, SIMGPU_PLACE);
}
void __tsan_write_range(void* data, std::size_t bytes) {
  on_range(data, bytes, AccessKind::write, SIMGPU_PLACE);
}

SIMGPU_ATOMICS(8, std::uint8_t)
SIMGPU_ATOMICS(16, std::uint16_t)
SIMGPU_ATOMICS(32, std::uint32_t)
SIMGPU_ATOMICS(64, std::uint64_t)
void __tsan_atomic_thread_fence(int) {
  simgpu::device_fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

void __ubsan_handle_out_of_bounds(void* data, std::uintptr_t index) {
  on_index(*static_cast<const OutOfBounds*>(data), index);
}
void __ubsan_handle_type_mismatch_v1(void* data, std::uintptr_t address) {
  const auto& mismatch = *static_cast<const Mismatch*>(data);
  if (address % mismatch.alignment() != 0)
    on_alignment(mismatch, address, SIMGPU_PLACE);
  else
    on_object(mismatch, reinterpret_cast<const void*>(address));
}
void __ubsan_handle_out_of_bounds_abort(void* data, std::uintptr_t index) {
  on_index(*static_cast<const OutOfBounds*>(data), index);
  __builtin_abort();
}

}  // extern "C"
