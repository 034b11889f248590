#pragma once

#include <cstddef>
#include <string>

namespace lockstep::comm::shm {

/// Memory that processes of one host share. It is a file without a name: no other job can meet it,
/// and it is gone with the last process that has it, however that one ended.
class MemoryFile {
 public:
  /// Makes a file of zeros; nothing of it is reserved yet. @throws Unsupported with the reason
  explicit MemoryFile(std::size_t bytes);
  /// Opens the file of another process, or thread, of this user. @param address as that one has it.
  /// @throws Unsupported where the address leads nowhere, or to anything else
  MemoryFile(const std::string& address, std::size_t bytes);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  /// Where others open it, as long as this object lives: process, descriptor, token.
  std::string address() const;
  std::byte* data() const;

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

}  // namespace lockstep::comm::shm
