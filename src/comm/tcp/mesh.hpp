#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp/handshake_message.hpp"
#include "comm/tcp/socket.hpp"

namespace lockstep::comm::tcp {

/// How the ends of a mesh are found.
struct MeshPlan {
  int rank, size;
  std::string address;  ///< interface of this rank to listen on
  std::string token;
  std::chrono::milliseconds timeout;  ///< for one connection to come about
  /// How long a rank waits for one of a higher number to connect before it does so itself: two that
  /// want each other at the same time need not both.
  std::chrono::milliseconds courtesy{20};
};

/// Connections between the ranks of a group, made when either side first wants them. A thread
/// accepts and connects, so that a rank which is busy elsewhere can be reached.
///
/// Where two ranks connect to each other at the same time, the connection of the lower one stays:
/// it does not answer the other's while its own is under way, and the other gives its own up when
/// it accepts the lower one's. No data goes over a connection before its answer.
class Mesh {
 public:
  /// What has come about: a connection, or that there will be none.
  struct News {
    int peer;  ///< -1: of whichever
    Socket socket = {};
    bool is_gone = false;      ///< nobody listens there, or any more
    std::string failure = {};  ///< why there will be no connection; of one that is gone, how
  };

  /// @param endpoints of all ranks, by rank.
  /// @param wake an eventfd that is written to when there is news; outlives this object.
  Mesh(const MeshPlan& plan, Socket listener, std::vector<std::string> endpoints,
       const Socket& wake);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  /// Ends what is under way; after `tell_all` only once that has had a moment.
  ~Mesh();

  /// Asks for a connection. News of it comes once.
  void want(int peer);
  /// The news since the last call.
  std::vector<News> take();
  /// Sends these bytes, and the end, to every rank to which no connection has been taken.
  void tell_all(const std::string& bytes) noexcept;

 private:
  /// This side's attempt at a connection.
  struct Dial {
    enum class State { paused, connecting, presented };
    State state = State::paused;
    Socket socket = {};
    Deadline next = {};   // when a pause, or the wait for an acknowledgement, is over
    Deadline limit = {};  // for the connection to come about
    std::string problem = "nobody answered";
    Socket held = {};  // the peer's own connection, meanwhile
  };
  enum class Link : char { none, dialing, ready, gone };

  void run();
  void wait();
  void begin_dials();
  void begin_dial(int peer, Deadline at);
  void step(int peer, Dial& dial);
  void connect(int peer, Dial& dial);
  void present(int peer, Dial& dial);
  void read_answer(int peer, Dial& dial);
  std::string refusal_of(int peer) const;
  void try_again(int peer, Dial& dial, const std::string& problem);
  void end_dial(int peer, News news);
  void accept();
  void receive_handshakes();
  void take_in(int peer, Socket socket);
  void report(News news);
  bool is_over();
  Link& link(int peer) { return links_[static_cast<std::size_t>(peer)]; }

  MeshPlan plan_;
  Socket listener_;
  std::vector<std::string> endpoints_;
  const Socket& wake_;
  Socket wake_thread_;
  HandshakeMessage own_;
  std::vector<Link> links_;
  std::map<int, Dial> dials_;
  std::vector<Pending> pending_;
  std::vector<Socket> told_;  // kept open, so that what was sent arrives
  Deadline listen_again_{};   // after the process could open no more files
  std::optional<Deadline> cannot_accept_since_;

  std::mutex mutex_;  // guards what follows
  std::vector<int> wanted_;
  std::vector<News> news_;
  std::string last_words_;
  bool tells_all_ = false, is_stopping_ = false;
  Deadline end_{};
  std::thread thread_;
};

}  // namespace lockstep::comm::tcp
