#include "checkpoint/staging.hpp"

#include <cerrno>
#include <cstdlib>

#include <sys/mman.h>

#include "io/file_calls.hpp"
#include "io/file_descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;

}  // namespace

void Staging::Free::operator()(std::byte* memory) const noexcept {
  if (mapped > 0)
    ::munmap(memory, mapped);
  else
    std::free(memory);
}

Staging::Memory Staging::allocate(std::uint64_t bytes) {
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(huge_page_bytes, bytes)));
  LOCKSTEP_CHECK(memory, OutOfMemory, "no ", bytes,
                 " bytes for a copy of this rank's part of a checkpoint");
  ::madvise(memory.get(), bytes, MADV_HUGEPAGE);  // or the first copy takes a fault for each page
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
  return {static_cast<std::byte*>(memory), Free{bytes}};
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

std::span<std::byte> Staging::take(std::uint64_t bytes, std::uint64_t offset) {
  const std::uint64_t begin =
      (used_ + page_bytes - 1) / page_bytes * page_bytes + offset % page_bytes;
  LOCKSTEP_CHECK(begin + bytes <= size_, Error, "more was taken than was reserved");
  used_ = begin + bytes;
  return {memory_.get() + begin, bytes};
}

}  // namespace lockstep::checkpoint
