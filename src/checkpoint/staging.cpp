#include "checkpoint/staging.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <sys/mman.h>

#include "io/file_calls.hpp"
#include "io/file_descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/runtime/device_runtime.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;
constexpr std::uint64_t pinned_slice_bytes = std::uint64_t{64} << 20;

}  // namespace

void Staging::Free::operator()(std::byte* memory) const noexcept {
  for (std::uint64_t at = 0; at < pinned; at += pinned_slice_bytes)
    if (!device_runtime(pinned_by.type).unpin(pinned_by, memory + at)) return;  // left for good
  ::munmap(memory, mapped);
}

Staging::Memory Staging::allocate(std::uint64_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes + huge_page_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  LOCKSTEP_CHECK(mapped != MAP_FAILED, OutOfMemory, "no ", bytes,
                 " bytes for a copy of this rank's part of a checkpoint");
  // Of the one page more stays what makes the memory begin at one.
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::uint64_t before = -reinterpret_cast<std::uintptr_t>(mapped) % huge_page_bytes;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, huge_page_bytes - before);
  Memory memory(begin + before, Free(bytes));
  ::madvise(memory.get(), bytes, MADV_HUGEPAGE);  // or the first copy takes a fault for each page
  // Pinned pages would be copied for a child at once, or, by older kernels, leave with it.
  ::madvise(memory.get(), bytes, MADV_DONTFORK);
  return memory;
}

// Without the space taken ahead, a full file system would end the process by a signal.
Staging::Memory Staging::map(const std::filesystem::path& path, std::uint64_t bytes) {
  const io::FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) throw io::FileError("open", path, errno);
  if (io::file_calls.allocate(file.get(), static_cast<off_t>(bytes)) != 0)
    throw io::FileError("fallocate", path, errno);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) throw io::FileError("mmap", path, errno);
  return {static_cast<std::byte*>(memory), Free(bytes)};
}

void Staging::reserve(std::uint64_t bytes, std::size_t runs) {
  used_ = 0;
  const std::uint64_t needed = bytes + 2 * runs * page_bytes;  // two pages to fit a run's place
  if (memory_ && needed <= size_) return;
  const std::uint64_t size = (needed / huge_page_bytes + 1) * huge_page_bytes;
  memory_.reset();
  size_ = 0;
  memory_ = file_.empty() ? allocate(size) : map(file_, size);
  size_ = size;
}

void Staging::touch(const std::atomic<bool>& stops) noexcept {
  volatile std::byte* const memory = memory_.get();
  for (std::uint64_t at = 0; at < size_ && !stops; at += page_bytes) memory[at] = std::byte{};
}

void Staging::pin(std::optional<Device> device, const std::atomic<bool>& stops) noexcept {
  if (!device || !memory_) return;
  Free& state = memory_.get_deleter();
  state.pinned_by = *device;
  while (state.pinned < size_ && !stops) {
    const std::uint64_t bytes = std::min(pinned_slice_bytes, size_ - state.pinned);
    try {
      if (!device_runtime(device->type).pin(*device, memory_.get() + state.pinned, bytes)) return;
    } catch (const Error&) {  // the device has failed, which the next copy tells
      return;
    }
    state.pinned += bytes;
  }
}

Staging::Stretch Staging::stretch(std::span<std::byte> bytes) const noexcept {
  const auto begin = static_cast<std::uint64_t>(bytes.data() - memory_.get());
  if (begin >= memory_.get_deleter().pinned) return {bytes, false};
  return {bytes.first(std::min(bytes.size(), pinned_slice_bytes - begin % pinned_slice_bytes)),
          true};
}

std::span<std::byte> Staging::take(std::uint64_t bytes, std::uint64_t offset) {
  const std::uint64_t begin =
      (used_ + page_bytes - 1) / page_bytes * page_bytes + offset % page_bytes;
  LOCKSTEP_CHECK(begin + bytes <= size_, Error, "more was taken than was reserved");
  used_ = begin + bytes;
  return {memory_.get() + begin, bytes};
}

}  // namespace lockstep::checkpoint
