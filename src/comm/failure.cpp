#include "comm/failure.hpp"

#include "lockstep/comm/errors.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::comm {

namespace {

// What the library itself said: the message without the words that LibraryError puts around it.
std::string detail_of(const LibraryError& error) {
  const std::string message = error.what(), before = " failed with status ";
  const std::string status = std::to_string(error.status()) + " (";
  const std::size_t at = message.find(before + status);
  if (at == std::string::npos || message.back() != ')') return message;
  const std::size_t from = at + before.size() + status.size();
  return message.substr(from, message.size() - 1 - from);
}

}  // namespace

Failure Failure::from_peer(const std::string& message) {
  Failure failure;
  failure.kind_ = Kind::peer;
  failure.message_ = message;
  return failure;
}

Failure Failure::mismatch(const std::string& message) {
  Failure failure;
  failure.kind_ = Kind::mismatch;
  failure.message_ = message;
  return failure;
}

Failure Failure::timeout(const std::string& message) {
  Failure failure;
  failure.kind_ = Kind::timeout;
  failure.message_ = message;
  return failure;
}

Failure Failure::from_current() {
  Failure failure;
  const auto keep = [&](Kind kind, const std::exception& error) {
    failure.kind_ = kind;
    failure.message_ = error.what();
  };
  const auto keep_library = [&](Kind kind, const LibraryError& error) {
    keep(kind, error);
    failure.call_ = error.call();
    failure.detail_ = detail_of(error);
    failure.status_ = error.status();
  };
  try {
    throw;
  } catch (const Mismatch& error) {
    keep(Kind::mismatch, error);
  } catch (const Timeout& error) {
    keep(Kind::timeout, error);
  } catch (const PeerFailure& error) {
    keep(Kind::peer, error);
  } catch (const MpiError& error) {
    keep_library(Kind::mpi, error);
  } catch (const NcclError& error) {
    keep_library(Kind::nccl, error);
  } catch (const CudaError& error) {
    keep_library(Kind::cuda, error);
  } catch (const InvalidArgument& error) {
    keep(Kind::argument, error);
  } catch (const Unsupported& error) {
    keep(Kind::unsupported, error);
  } catch (const CorruptData& error) {
    keep(Kind::corrupt, error);
  } catch (const std::exception& error) {
    keep(Kind::other, error);
  } catch (...) {
    failure.message_ = "unknown exception";
  }
  return failure;
}

bool Failure::is_from_peer() const { return kind_ == Kind::peer; }

bool Failure::is_mismatch() const { return kind_ == Kind::mismatch; }

std::string Failure::summary() const { return message_.substr(0, message_.find('\n')); }

void Failure::add_context(const std::string& context) {
  if (is_mismatch())
    message_ += "\n  found by " + context;
  else
    message_ = context + ": " + message_;
  detail_ = context + ": " + detail_;
}

void Failure::raise() const {
  note_told();
  throw_copy();
}

void Failure::throw_copy() const {
  switch (kind_) {
    case Kind::mismatch: throw Mismatch(message_);
    case Kind::timeout: throw Timeout(message_);
    case Kind::peer: throw PeerFailure(message_);
    case Kind::mpi: throw MpiError(call_, status_, detail_);
    case Kind::nccl: throw NcclError(call_, status_, detail_);
    case Kind::cuda: throw CudaError(call_, status_, detail_);
    case Kind::argument: throw InvalidArgument(message_);
    case Kind::unsupported: throw Unsupported(message_);
    case Kind::corrupt: throw CorruptData(message_);
    case Kind::other: break;
  }
  throw Error(message_);
}

std::exception_ptr Failure::as_exception() const {
  try {
    raise();
  } catch (...) {
    return std::current_exception();
  }
}

void Failure::keep_unless_told() const noexcept {
  if (is_told()) return;
  try {
    keep_background_failure([failure = *this] {
      if (!failure.is_told()) failure.raise();
    });
  } catch (...) {
    // Out of memory for the note; the group's next call still fails.
  }
}

}  // namespace lockstep::comm
