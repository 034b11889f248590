#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

/// @file
/// Writing a file so that a reader sees the old contents or the new ones, never a mixture.

namespace lockstep::io {

/// Writes into a temporary file beside the target, which `commit` puts in the target's place:
/// fsync, rename, fsync of the folder. Without a commit, or if a call fails, the target stays as it
/// was. As when a file is opened and written, symbolic links are followed, and a file that exists
/// keeps its mode, and its owner and group where the system allows that. One thread at a time.
class AtomicFile {
 public:
  /// Creates the temporary file, named `.NAME.tmp-PID-NUMBER`; a long NAME is cut.
  /// @throws FileError; InvalidArgument if the target exists and is no regular file.
  explicit AtomicFile(std::filesystem::path target);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends bytes.
  /// @throws FileError, with ENOSPC for a full disk; InvalidArgument after a commit or a failure.
  void write(std::span<const std::byte> bytes);
  /// Appends text. @throws FileError.
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// Writes out all that is buffered, makes it durable and closes the temporary file: nothing but a
  /// commit can follow. @throws as write.
  void finish();
  /// Makes the contents durable under the target's name. When it returns, they survive a power
  /// failure. @throws FileError; the old contents are then still there, unless the last step, the
  /// fsync of the folder, is what failed. InvalidArgument after a commit or a failure.
  void commit();

 private:
  void check_open() const;
  void discard() noexcept;
  [[noreturn]] void fail(const char* call);
  void flush();
  void write_through(std::span<const std::byte> bytes);

  std::filesystem::path target_, temporary_;
  std::vector<std::byte> buffer_;
  int descriptor_ = -1;
  bool committed_ = false;
  bool finished_ = false;  // and not committed yet
};

}  // namespace lockstep::io
