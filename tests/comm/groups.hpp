#pragma once

#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/group_registry.hpp"
#include "comm/hier/hier_executor.hpp"
#include "comm/host/host_backend.hpp"
#include "comm/host/message_executor.hpp"
#include "comm/shm/shm_executor.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/thread/thread_transport.hpp"
#include "comm/token.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// Groups of threads without a launcher, over what processes use.

namespace lockstep::comm {

using Hosts = std::vector<int>;  // of each rank

enum class Messages { threads, sockets };

/// Bytes exchanged between threads.
class Exchange {
 public:
  explicit Exchange(std::size_t ranks)
      : told_(ranks), arrived_(static_cast<std::ptrdiff_t>(ranks)) {}
  std::vector<std::string> operator()(int rank, std::string_view own) {
    told_[static_cast<std::size_t>(rank)] = own;
    arrived_.arrive_and_wait();
    auto all = told_;
    arrived_.arrive_and_wait();
    return all;
  }
  void meet() { arrived_.arrive_and_wait(); }

 private:
  std::vector<std::string> told_;
  std::barrier<> arrived_;
};

/// Carries news between the groups of threads, as the control channel does between processes.
class News {
 public:
  explicit News(int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      registries_.push_back(std::make_shared<GroupRegistry>());
    for (const auto& own : registries_)
      own->set_announcer([this, &own](const std::string& news) {
        for (const auto& other : registries_)
          if (other != own) other->receive(news);
      });
  }
  News(const News&) = delete;
  News& operator=(const News&) = delete;
  GroupMembership membership(int rank) const {
    return GroupMembership(registries_[static_cast<std::size_t>(rank)]);
  }

 private:
  std::vector<std::shared_ptr<GroupRegistry>> registries_;
};

using MakeExecutor =
    std::function<std::unique_ptr<host::Executor>(int rank, host::GatherBytes all_gather)>;

/// Runs the body on each rank of a group whose executors `make` makes.
/// @param news null: the ranks hear of each other by the executors alone.
inline void run_over(int ranks, const MakeExecutor& make,
                     const std::function<void(Communicator&)>& body,
                     const CommunicatorOptions& options, const News* news = nullptr) {
  Exchange exchange(static_cast<std::size_t>(ranks));
  const auto play = [&](int rank) {
    const auto all_gather = [&](std::string_view own) { return exchange(rank, own); };
    GroupMembership membership = news ? news->membership(rank) : GroupMembership();
    const auto group = make_intrusive<Communicator>(std::make_unique<host::HostBackend>(
        make(rank, all_gather), "world", options, std::move(membership)));
    body(*group);
    exchange.meet();  // nobody leaves while another still waits
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(play, rank);
  for (std::thread& thread : threads) thread.join();
}

inline std::vector<int> all_of(int ranks) {
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

/// Ranks that share a window.
inline void run_over_window(int ranks, const std::function<void(Communicator&)>& body,
                            const CommunicatorOptions& options = {
                                .timeout = std::chrono::seconds(60)}) {
  run_over(
      ranks,
      [&](int rank, host::GatherBytes all_gather) {
        return std::make_unique<shm::ShmExecutor>(
            shm::enter_window({all_of(ranks), rank, all_gather}), rank, "world",
            options.check_signatures);
      },
      body, options);
}

/// Makes messages between the threads of a group, over sockets or not.
class MessagesOfThreads {
 public:
  MessagesOfThreads(int ranks, Messages messages)
      : ranks_(ranks), messages_(messages), hub_(std::make_shared<ThreadHub>(ranks)) {}
  std::unique_ptr<host::Transport> operator()(int rank, host::GatherBytes all_gather) const {
    if (messages_ == Messages::threads) return std::make_unique<ThreadTransport>(hub_, rank);
    return std::make_unique<tcp::TcpTransport>(
        tcp::MeshPlan{rank, ranks_, "127.0.0.1", token_, std::chrono::seconds(60)}, all_gather);
  }

 private:
  int ranks_;
  Messages messages_;
  std::shared_ptr<ThreadHub> hub_;
  std::string token_ = make_token();
};

/// Ranks that exchange messages.
inline void run_over_messages(
    int ranks, const std::function<void(Communicator&)>& body,
    const CommunicatorOptions& options = {.timeout = std::chrono::seconds(60)},
    Messages messages = Messages::sockets) {
  const MessagesOfThreads connect(ranks, messages);
  run_over(
      ranks,
      [&](int rank, host::GatherBytes all_gather) {
        return std::make_unique<host::MessageExecutor>(connect(rank, all_gather), "world",
                                                       options.check_signatures);
      },
      body, options);
}

/// Ranks of several hosts.
/// @param hosts of each rank, as the test says: those of one host share a real window.
inline void run_over_hosts(
    const Hosts& hosts, const std::function<void(Communicator&)>& body,
    const CommunicatorOptions& options = {.timeout = std::chrono::seconds(60)},
    Messages messages = Messages::threads, const News* news = nullptr) {
  const auto ranks = static_cast<int>(hosts.size());
  const MessagesOfThreads connect(ranks, messages);
  run_over(
      ranks,
      [&](int rank, host::GatherBytes all_gather) {
        SplitPlan plan;
        plan.members = all_of(ranks);
        plan.place = rank;
        plan.name = "world";
        plan.all_gather = all_gather;
        auto all =
            std::make_unique<host::MessageExecutor>(connect(rank, all_gather), "world", false);
        host::Executor& whole = *all;
        return hier::compose(whole, std::move(all), hosts, plan, options.check_signatures);
      },
      body, options, news);
}

}  // namespace lockstep::comm
