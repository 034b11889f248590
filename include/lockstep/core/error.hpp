#pragma once

#include <locale>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/macros.hpp"

/// @file
/// The family of exceptions that every lockstep function throws. A message says what was wrong,
/// which value was given, and what would be right.

namespace lockstep {
namespace detail {

/// An output of text that writes numbers in one way, whatever the program's global locale is: texts
/// are compared between ranks, and read back from files.
class TextStream : public std::ostringstream {
 public:
  TextStream() { imbue(std::locale::classic()); }
};

/// Reads what a TextStream has written, or the system.
class TextReader : public std::istringstream {
 public:
  explicit TextReader(const std::string& text) : std::istringstream(text) {
    imbue(std::locale::classic());
  }
};

}  // namespace detail

/// Base of all lockstep exceptions; carries the place that noticed the fault.
class Error : public std::runtime_error {
 public:
  /// @param message what was wrong, which value, what would be right.
  /// @param where the place in the source that noticed.
  explicit Error(const std::string& message,
                 std::source_location where = std::source_location::current())
      : std::runtime_error(message), where_(where) {}

  /// The place in the source that noticed the fault.
  const std::source_location& where() const noexcept { return where_; }

 private:
  std::source_location where_;
};

// The classes below spell out their constructors: nvcc 13 crashes on inherited ones whose default
// argument is a source location.

/// A caller passed a value that the function cannot accept.
class InvalidArgument : public Error {
 public:
  /// @param message, where see Error.
  explicit InvalidArgument(const std::string& message,
                           std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

/// The request is well-formed but this build, device or dtype does not offer it.
class Unsupported : public Error {
 public:
  /// @param message, where see Error.
  explicit Unsupported(const std::string& message,
                       std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

/// An allocation failed after the caches were flushed.
class OutOfMemory : public Error {
 public:
  /// @param message, where see Error.
  explicit OutOfMemory(const std::string& message,
                       std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

/// Something did not complete within its time limit.
class Timeout : public Error {
 public:
  /// @param message, where see Error.
  explicit Timeout(const std::string& message,
                   std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

/// A file or message does not hold what its format promises.
class CorruptData : public Error {
 public:
  /// @param message, where see Error.
  explicit CorruptData(const std::string& message,
                       std::source_location where = std::source_location::current())
      : Error(message, where) {}
};

/// A call into a vendor library failed; keeps the library's status and the call's name.
class LibraryError : public Error {
 public:
  /// @param library name of the library, such as "NCCL".
  /// @param call the call that failed.
  /// @param status the library's own status code.
  /// @param detail the library's own words for it.
  LibraryError(std::string_view library, std::string_view call, int status, std::string_view detail,
               std::source_location where = std::source_location::current())
      : Error(describe(library, call, status, detail), where), call_(call), status_(status) {}

  /// The library's status code.
  int status() const noexcept { return status_; }
  /// The call that failed.
  const std::string& call() const noexcept { return call_; }

 private:
  static std::string describe(std::string_view library, std::string_view call, int status,
                              std::string_view detail) {
    detail::TextStream out;
    out << library << ": " << call << " failed with status " << status << " (" << detail << ")";
    return out.str();
  }
  std::string call_;
  int status_;
};

/// Failure of a CUDA runtime or cuBLAS call.
class CudaError : public LibraryError {
 public:
  /// @param call, status, detail see LibraryError.
  CudaError(std::string_view call, int status, std::string_view detail,
            std::source_location where = std::source_location::current())
      : LibraryError("CUDA", call, status, detail, where) {}
};

/// Failure of a cuDNN call.
class CudnnError : public LibraryError {
 public:
  /// @param call, status, detail see LibraryError.
  CudnnError(std::string_view call, int status, std::string_view detail,
             std::source_location where = std::source_location::current())
      : LibraryError("cuDNN", call, status, detail, where) {}
};

/// Failure of an NCCL call, or an asynchronous error that NCCL reported.
class NcclError : public LibraryError {
 public:
  /// @param call, status, detail see LibraryError.
  NcclError(std::string_view call, int status, std::string_view detail,
            std::source_location where = std::source_location::current())
      : LibraryError("NCCL", call, status, detail, where) {}
};

/// Failure of an MPI call.
class MpiError : public LibraryError {
 public:
  /// @param call, status, detail see LibraryError.
  MpiError(std::string_view call, int status, std::string_view detail,
           std::source_location where = std::source_location::current())
      : LibraryError("MPI", call, status, detail, where) {}
};

/// Failure of a oneDNN call.
class OnednnError : public LibraryError {
 public:
  /// @param call, status, detail see LibraryError.
  OnednnError(std::string_view call, int status, std::string_view detail,
              std::source_location where = std::source_location::current())
      : LibraryError("oneDNN", call, status, detail, where) {}
};

namespace detail {

/// Streams all parts into one string: the message of an error.
template <class... Parts>
LOCKSTEP_COLD std::string concat(const Parts&... parts) {
  detail::TextStream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace detail
}  // namespace lockstep

/// Throws an error of a kind, such as InvalidArgument or ls::InvalidArgument, with a message
/// streamed from the remaining arguments.
#define LOCKSTEP_THROW(kind, ...)                                         \
  do {                                                                    \
    auto lockstep_message = ::lockstep::detail::concat(__VA_ARGS__);      \
    using namespace ::lockstep; /* so that the kind needs no qualifier */ \
    throw kind(lockstep_message);                                         \
  } while (false)

/// Throws an error of a kind unless the condition holds; the message is built only on failure.
#define LOCKSTEP_CHECK(condition, kind, ...) \
  do {                                       \
    if (!(condition)) [[unlikely]]           \
      LOCKSTEP_THROW(kind, __VA_ARGS__);     \
  } while (false)
