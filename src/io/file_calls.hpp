#pragma once

#include <csignal>
#include <cstdio>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/// @file
/// The system calls of a save, replaceable, so that tests can make each of them fail.

namespace lockstep::io {

/// Has what is written past the limit on files' sizes (ulimit -f) fail with EFBIG: its signal,
/// which would end the process, is ignored from now on, unless the program has a handler.
inline void fail_past_size_limit() noexcept {
  static const bool is_done [[maybe_unused]] = [] {
    struct sigaction now {};
    if (::sigaction(SIGXFSZ, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
      std::signal(SIGXFSZ, SIG_IGN);
    return true;
  }();
}

/// The calls by which AtomicFile and checkpoints change the file system.
struct FileCalls {
  int (*create)(const char* path, mode_t mode) = [](const char* path, mode_t mode) {
    fail_past_size_limit();
    return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  };
  ssize_t (*write)(int descriptor, const void* data, size_t size) = &::write;
  int (*fsync)(int descriptor) = &::fsync;
  int (*close)(int descriptor) = &::close;
  int (*rename)(const char* from, const char* to) = &::rename;
  /// Two names, at once; EINVAL or ENOSYS where the file system cannot.
  int (*exchange)(const char* one, const char* other) = [](const char* one, const char* other) {
    return ::renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE);
  };
  int (*make_folder)(const char* path, mode_t mode) = &::mkdir;
  /// Takes the space of a file; EOPNOTSUPP where the file system cannot.
  int (*allocate)(int descriptor, off_t size) = [](int descriptor, off_t size) {
    return ::fallocate(descriptor, 0, 0, size);
  };
  int (*resize)(int descriptor, off_t size) = &::ftruncate;
  ssize_t (*pwrite)(int descriptor, const void* data, size_t size, off_t offset) = &::pwrite;
  ssize_t (*pread)(int descriptor, void* data, size_t size, off_t offset) = &::pread;
  int (*advise)(int descriptor, off_t offset, off_t size, int advice) = &::posix_fadvise;
};

/// What the process uses. Only tests change it.
inline FileCalls file_calls;

}  // namespace lockstep::io
