#include "nccl/handshake_listener.hpp"

#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace simgpu::nccl {
namespace {

constexpr std::size_t most_pending = 256;
constexpr auto handshake_timeout = std::chrono::seconds(5);

}  // namespace

void HandshakeListener::accept_all() {
  while (Descriptor socket = accept_from(listener_)) {
    if (pending_.size() == most_pending) pending_.erase(pending_.begin());
    pending_.push_back({{std::move(socket), std::vector<std::byte>(handshake_)},
                        0,
                        Clock::now() + handshake_timeout});
  }
}

// False once there is no hope for the connection.
bool HandshakeListener::advance(Pending& pending) {
  auto& [socket, handshake] = pending.connection;
  const ssize_t got = recv(socket.get(), handshake.data() + pending.received,
                           handshake_ - pending.received, MSG_DONTWAIT);
  if (got > 0) pending.received += static_cast<std::size_t>(got);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (pending.received == handshake_)
    return equal_in_constant_time(handshake.data(), token_.data(), token_.size());
  return Clock::now() < pending.deadline;
}

std::optional<HandshakeListener::Connection> HandshakeListener::next(int milliseconds) {
  std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
  for (const Pending& pending : pending_)
    entries.push_back({pending.connection.socket.get(), POLLIN, 0});
  ::poll(entries.data(), entries.size(), milliseconds);
  accept_all();
  for (std::size_t i = 0; i < pending_.size();) {
    const bool is_valid = advance(pending_[i]);
    const bool is_complete = pending_[i].received == handshake_;
    if (is_valid && !is_complete) {
      ++i;
      continue;
    }
    Connection connection = std::move(pending_[i].connection);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    if (is_valid) return connection;
  }
  return std::nullopt;
}

}  // namespace simgpu::nccl
