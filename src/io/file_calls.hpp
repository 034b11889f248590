#pragma once

#include <cstdio>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

/// @file
/// The system calls of a save, replaceable, so that tests can make each of them fail.

namespace lockstep::io {

/// The calls by which AtomicFile changes the file system.
struct FileCalls {
  int (*create)(const char* path, mode_t mode) = [](const char* path, mode_t mode) {
    return ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  };
  ssize_t (*write)(int descriptor, const void* data, size_t size) = &::write;
  int (*fsync)(int descriptor) = &::fsync;
  int (*close)(int descriptor) = &::close;
  int (*rename)(const char* from, const char* to) = &::rename;
};

/// What the process uses. Only tests change it.
inline FileCalls file_calls;

}  // namespace lockstep::io
