#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/tcp/socket.hpp"
#include "lockstep/comm/bootstrap.hpp"

namespace lockstep::comm {

/// A rank's place in the binomial tree over all ranks, those of a host side by side, rank 0 at the
/// root: few of its edges lead from host to host. The ranks below a place are a range of places.
class TreePlace {
 public:
  TreePlace(std::span<const Peer> peers, int rank);

  /// All ranks, by place.
  const std::vector<int>& order() const { return order_; }
  bool is_root() const { return place_ == 0; }
  int parent() const;
  /// Those with fewer ranks below them first: behind this rank's place come theirs in that order.
  std::vector<int> children() const;
  /// Ranks below one of the children, itself included.
  int count_below(int child) const;
  /// Steps to the rank farthest below.
  int height() const;
  /// Steps from the root to this rank, after as many as from the farthest rank to the root.
  int steps_down() const;

 private:
  int end_of(int place) const;

  std::vector<int> order_;
  int place_ = 0;
};

/// Exchanges over connections to the neighbours in the tree: what each rank gives goes up, and what
/// all gave comes down. A rank that finds another gone or late says so to its neighbours, who pass
/// it on: all name the same rank.
class ExchangeTree {
 public:
  struct Neighbour {
    int rank = 0;
    tcp::Socket socket;
  };

  /// @param parent nothing at the root. @param children as the place has them.
  ExchangeTree(TreePlace place, Neighbour parent, std::vector<Neighbour> children);

  /// Gives every rank what all gave, by rank.
  /// @param check called while nothing comes; what it throws ends the exchange on all ranks.
  /// @throws PeerFailure, Timeout, CorruptData
  std::vector<std::string> exchange(std::string_view own, std::chrono::milliseconds timeout,
                                    tcp::Check check);

 private:
  struct Link {
    int rank;
    tcp::Socket socket;
    std::uint64_t header = 0;
    std::size_t header_left = sizeof(std::uint64_t);
    std::string body = {};
    std::size_t received = 0;  // of the body
    bool is_due = false;       // a message of this exchange is still to come from it
    bool is_amid_ours = false;
  };

  std::string gather(std::string_view own, tcp::Deadline deadline, tcp::Check check);
  std::string run(std::string_view own, std::chrono::milliseconds timeout, tcp::Check check);
  void receive(std::span<Link> from, tcp::Deadline deadline, tcp::Check check);
  void read(Link& link);
  void read_header(Link& link);
  bool read_some(Link& link, char* room, std::size_t size, std::size_t& received);
  void send(Link& link, std::string_view bytes, tcp::Deadline deadline);
  void give_up(const std::string& reason) noexcept;
  std::span<Link> parent() { return std::span(links_).first(place_.is_root() ? 0 : 1); }
  std::span<Link> children() { return std::span(links_).subspan(place_.is_root() ? 0 : 1); }

  TreePlace place_;
  std::vector<Link> links_;  // the parent's first
  std::string failure_;      // of an earlier exchange
};

}  // namespace lockstep::comm
