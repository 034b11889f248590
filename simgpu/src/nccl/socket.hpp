#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

/// @file
/// The few socket calls of rendezvous and replication.

namespace simgpu::nccl {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor();

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// An IPv4 or IPv6 address in text, and a port.
struct Endpoint {
  char address[48] = {};
  int port = 0;
};

/// Asked while something waits: true ends the wait.
using GiveUp = std::function<bool()>;

/// Where the ranks of a job meet: LOCKSTEP_ADDRESS, an address or an interface's name, else this
/// host's first interface that leads to others if the launcher says that there are some, else the
/// loopback interface.
std::string rendezvous_address();
/// Listens on one interface, on a port that the system chooses. @throws Failure
Descriptor listen_on(const std::string& address);
/// The address and port of this side of a socket. @throws Failure
Endpoint local_endpoint(const Descriptor& socket);
/// Connects, again and again for ten seconds. @throws Failure naming the address
Descriptor connect_to(const Endpoint& endpoint, const GiveUp& give_up);
/// Takes a waiting connection (non-blocking, without Nagle's delay), if there is one.
Descriptor accept_from(const Descriptor& listener);
/// Waits for data or a connection. False after `milliseconds`.
bool wait_readable(const Descriptor& socket, int milliseconds);

/// Sends or receives all bytes of a non-blocking socket. False if the peer is gone or the wait was
/// given up.
bool send_all(const Descriptor& socket, const void* data, std::size_t bytes, const GiveUp& give_up);
bool receive_all(const Descriptor& socket, void* room, std::size_t bytes, const GiveUp& give_up);

/// Fills with random bytes. @throws Failure
void fill_random(void* room, std::size_t bytes);
/// Compares in a time that does not depend on the content.
bool equal_in_constant_time(const void* a, const void* b, std::size_t bytes);

}  // namespace simgpu::nccl
