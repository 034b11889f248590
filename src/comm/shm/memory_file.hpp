#pragma once

#include <cstddef>
#include <string>

namespace lockstep::comm::shm {

/// The size of a page of memory.
inline constexpr std::size_t page_bytes = 4096;

/// Memory that processes of one host share. It is a file without a name: no other job can meet it,
/// and it is gone with the last process that has it, however that one ended.
class MemoryFile {
 public:
  /// Makes a file of zeros; nothing of it is reserved yet. @throws Unsupported with the reason
  /// @param more bytes that follow in the file, and are not mapped.
  explicit MemoryFile(std::size_t bytes, std::size_t more = 0);
  /// Opens the file of another process, or thread, of this user. @param address as that one has it.
  /// @throws Unsupported where the address leads nowhere, or to anything else
  MemoryFile(const std::string& address, std::size_t bytes, std::size_t more = 0);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  /// Where others open it, as long as this object lives: process, descriptor, token.
  std::string address() const;
  std::byte* data() const;

  /// A descriptor of the same file that holds no place; the caller closes it. @throws Unsupported
  int open_again() const;
  /// Where in the file the bytes begin that are not mapped.
  std::size_t mapped_bytes() const { return bytes_; }

  /// Takes memory for a part of it. What is not reserved must not be touched: where memory has run
  /// out by then, the process would end with SIGBUS. @throws Unsupported where there is too little
  void reserve(std::size_t begin, std::size_t bytes);

  /// Says that the holder of this place lives. @throws Unsupported
  void hold(int place);
  /// False once whoever held the place is gone, in whatever way; for places that were held.
  bool is_held(int place) const noexcept;

 private:
  void map();

  std::size_t bytes_;  // with the first page
  int file_ = -1;
  std::byte* memory_ = nullptr;
  std::string token_;  // the first bytes of the first page
};

/// Takes memory for a part of a file. @return the error, or 0
int reserve_in_file(int file, std::size_t begin, std::size_t bytes);

}  // namespace lockstep::comm::shm
