#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"

namespace lockstep::comm::tcp {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// The process, or the system, can open no more files, now.
class TooManyFiles : public Error {
 public:
  using Error::Error;
};

/// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() { close(); }

  int descriptor() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void close() noexcept;

 private:
  int descriptor_ = -1;
};

/// An address and a port.
struct Endpoint {
  std::string address;  ///< IPv4, IPv6 with or without brackets, or a name
  int port = 0;

  /// "address port", as `parse` reads it.
  std::string to_string() const { return address + " " + std::to_string(port); }
  /// @throws CorruptData
  static Endpoint parse(std::string_view text);
};

/// Raises the process' limit of open files, as far as the system lets it, for several connections
/// to each of so many ranks beside what is open, and what other libraries will open. Where it stays
/// too low, `connect_to` and `accept_from` say so.
void make_room_for_connections(int ranks) noexcept;
/// Listens on one interface. Port 0: the system chooses.
/// @param deadline up to which a name that is not known may become so.
/// @throws Error naming the address.
Socket listen_on(const Endpoint& endpoint, Deadline deadline = {});
/// The same, but an empty socket, and errno, where it cannot.
Socket try_listen_on(const Endpoint& endpoint, Deadline deadline = {});
/// Listens on all interfaces, by the protocol that the address is of: IPv4 or IPv6. @throws Error
Socket listen_everywhere(const Endpoint& endpoint);
/// Where a socket is bound.
Endpoint local_endpoint(const Socket& socket);
/// Called again and again while something is waited for; ends the wait by an exception.
using Check = FunctionRef<void()>;
inline constexpr auto check_nothing = [] {};

/// Pauses between attempts, from 25 ms to a second, each longer by half; and by chance, so that the
/// ranks of a job do not all ask at once.
class Backoff {
 public:
  using Duration = std::chrono::milliseconds;
  explicit Backoff(Duration first = Duration(25));
  /// How long the next pause is.
  Duration next();
  /// Makes it, up to a deadline.
  void sleep(Deadline deadline);

 private:
  Duration length_;
  std::minstd_rand random_;
};

/// Connects, and tries again, more and more seldom, while a name is not known or nobody listens
/// yet. A name is looked up again after some seconds. @throws Timeout naming the address,
/// TooManyFiles, or what `check` throws.
Socket connect_to(const Endpoint& endpoint, Deadline deadline, Check check = check_nothing);
/// Begins to connect to a numeric address, for whoever waits for several connections at a time:
/// once the socket can be written to, `end_connect` tells what has become of it. An empty socket,
/// and errno, if it fails at once. @throws TooManyFiles
Socket begin_connect(const Endpoint& endpoint);
/// Zero, or the error number of a connection that did not come about.
int end_connect(const Socket& socket);
/// True if the peer has closed its end, or is gone.
bool has_hung_up(const Socket& socket);
/// Takes one waiting connection, or none; one of another user to `listen_locally` is dropped.
/// Non-blocking, closed on exec, without Nagle's delay, kept alive. @throws TooManyFiles
std::optional<Socket> accept_from(const Socket& listener);

/// The loopback interface's address: IPv4's, or IPv6's where there is no other.
std::string loopback_address();
/// An address of this host that other hosts can reach: LOCKSTEP_ADDRESS, which may name an
/// interface, else that of the first interface that is up and not loopback (`best_address`).
/// @throws Unsupported without one.
std::string reachable_address();
/// True for an address, numeric or localhost, that means the same host wherever it is said.
bool is_loopback(std::string_view address);

/// Whether errno says of a non-blocking socket that it is to be tried again.
bool would_block();
/// Sends all bytes on a non-blocking socket. False if the peer is gone. @throws Timeout
bool send_all(const Socket& socket, std::span<const std::byte> data, Deadline deadline);
/// Receives exactly so many bytes. False if the peer is gone. @throws Timeout
bool receive_all(const Socket& socket, std::span<std::byte> room, Deadline deadline);

}  // namespace lockstep::comm::tcp
