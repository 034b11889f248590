#include "nccl/doorkeeper.hpp"

#include <cerrno>

#include <poll.h>
#include <sys/socket.h>

namespace simgpu::nccl {
namespace {

constexpr std::size_t most_pending = 256;
constexpr auto greeting_patience = std::chrono::seconds(5);

}  // namespace

void Doorkeeper::accept_all() {
  while (Descriptor socket = accept_from(listener_)) {
    if (pending_.size() == most_pending) pending_.erase(pending_.begin());
    pending_.push_back({{std::move(socket), std::vector<std::byte>(greeting_)},
                        0,
                        Clock::now() + greeting_patience});
  }
}

// False once there is no hope for the connection.
bool Doorkeeper::advance(Pending& pending) {
  auto& [socket, greeting] = pending.guest;
  const ssize_t got = recv(socket.get(), greeting.data() + pending.received,
                           greeting_ - pending.received, MSG_DONTWAIT);
  if (got > 0) pending.received += static_cast<std::size_t>(got);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (pending.received == greeting_)
    return equal_in_constant_time(greeting.data(), token_.data(), token_.size());
  return Clock::now() < pending.deadline;
}

std::optional<Doorkeeper::Guest> Doorkeeper::next(int milliseconds) {
  std::vector<pollfd> entries{{listener_.get(), POLLIN, 0}};
  for (const Pending& pending : pending_)
    entries.push_back({pending.guest.socket.get(), POLLIN, 0});
  ::poll(entries.data(), entries.size(), milliseconds);
  accept_all();
  for (std::size_t i = 0; i < pending_.size();) {
    const bool is_welcome = advance(pending_[i]);
    const bool is_complete = pending_[i].received == greeting_;
    if (is_welcome && !is_complete) {
      ++i;
      continue;
    }
    Guest guest = std::move(pending_[i].guest);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    if (is_welcome) return guest;
  }
  return std::nullopt;
}

}  // namespace simgpu::nccl
