#include <barrier>
#include <thread>

#include "comm/batch_contract.hpp"
#include "comm/host/message_executor.hpp"
#include "comm/host_batch_contract.hpp"
#include "comm/host_communicator_contract.hpp"
#include "comm/tcp/tcp_transport.hpp"
#include "comm/token.hpp"

namespace lockstep::comm {
namespace {

// Ranks as threads, but talking over real sockets on loopback.
template <int ranks>
struct Sockets {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    const std::string token = make_token();
    std::vector<std::string> endpoints(ranks);
    std::barrier arrived(ranks);
    const auto play = [&](int rank) {
      const auto gather = [&](std::string_view own) {
        endpoints[static_cast<std::size_t>(rank)] = own;
        arrived.arrive_and_wait();
        return endpoints;
      };
      const tcp::MeshPlan plan{rank, ranks, "127.0.0.1", token, std::chrono::seconds(60)};
      const auto group = make_intrusive<Communicator>(host::make_message_backend(
          std::make_unique<tcp::TcpTransport>(plan, gather), "world", options));
      body(*group);
      arrived.arrive_and_wait();  // nobody hangs up while another still listens
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(play, rank);
    for (std::thread& thread : threads) thread.join();
  }
};

using SocketWorlds = ::testing::Types<Sockets<2>, Sockets<3>, Sockets<9>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, CommunicatorContract, SocketWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, HostCommunicatorContract, SocketWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, BatchContract, SocketWorlds);
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, HostBatchContract, SocketWorlds);

}  // namespace
}  // namespace lockstep::comm
