#include "comm/tcp/local_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm::tcp {
namespace {

/// An abstract name: it lives in the network namespace, as ports do, and ends with its process.
struct LocalAddress {
  explicit LocalAddress(int port) {
    const std::string name = "lockstep-" + std::to_string(geteuid()) + "-" + std::to_string(port);
    address.sun_family = AF_UNIX;
    std::ranges::copy(name, address.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

Socket local_socket() {
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  LOCKSTEP_CHECK(socket, Error, "cannot make a local socket: ", std::strerror(errno));
  return socket;
}

}  // namespace

Socket listen_locally(int port) {
  Socket socket = local_socket();
  const LocalAddress place(port);
  LOCKSTEP_CHECK(bind(socket.descriptor(), place.get(), place.size) == 0 &&
                     listen(socket.descriptor(), SOMAXCONN) == 0,
                 Error, "cannot listen for the job of port ", port,
                 " on this host: ", std::strerror(errno),
                 "; another job may use the port, so choose another one");
  return socket;
}

Socket connect_locally(int port, Deadline deadline) {
  const LocalAddress place(port);
  do {
    Socket socket = local_socket();
    if (connect(socket.descriptor(), place.get(), place.size) == 0) {
      LOCKSTEP_CHECK(is_welcome(socket), Error, "another user listens for the job of port ", port,
                     " on this host; choose another port");
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (Clock::now() < deadline);
  LOCKSTEP_THROW(Timeout, "nobody on this host listens for the job of port ", port,
                 " in time: is rank 0 running here, as the same user? Ranks in several containers "
                 "need LOCKSTEP_JOB_TOKEN, the same random text on all of them");
}

bool is_welcome(const Socket& socket) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof family;
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_DOMAIN, &family, &size);
  if (family != AF_UNIX) return true;
  ucred peer{};
  size = sizeof peer;
  return getsockopt(socket.descriptor(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == geteuid();
}

}  // namespace lockstep::comm::tcp
