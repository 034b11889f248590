#include "comm/mpi/mpi_transport.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/errors.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::comm {
namespace {

using Bytes = std::array<std::byte, 64>;

host::Outgoing to_rank_1(std::span<const std::byte> data) { return {.peer = 1, .data = data}; }

// Errors of several requests concern no one communicator: MPICH raises them on these.
TEST(MpiTransport, GetsErrorsThatConcernNoCommunicator) {
  for (const MPI_Comm communicator : {MPI_COMM_WORLD, MPI_COMM_SELF}) {
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    ASSERT_EQ(MPI_Comm_get_errhandler(communicator, &handler), MPI_SUCCESS);
    EXPECT_TRUE(handler == MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
  }
}

// Its memory is the caller's again, while the message that it waited for is still to come.
TEST(MpiTransport, WritesNothingOnceATransferHasFailed) {
  Bootstrap& bootstrap = testing::test_bootstrap();
  if (bootstrap.size() == 1) GTEST_SKIP() << "one rank sends nothing";
  MPI_Comm world = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_dup(MPI_COMM_WORLD, &world), MPI_SUCCESS);
  MpiTransport transport(world);
  const host::Deadline deadline;
  const host::WaitOptions options{.deadline = &deadline};
  Bytes first{}, second{};
  if (bootstrap.rank() == 0) {
    const std::array out{to_rank_1(first)};
    transport.transfer(out, {}, options);
  } else if (bootstrap.rank() == 1) {
    std::array<host::Incoming, 2> in{{{.peer = 0, .room = std::span(first).first(8)},  // too little
                                      {.peer = 0, .room = second}}};
    const auto take = [](host::Incoming&) { return false; };
    EXPECT_THROW(transport.exchange({}, in, options, take), MpiError);
    EXPECT_TRUE(transport.quiesce());
  }
  bootstrap.all_gather_bytes("", "the first transfer is over");
  if (bootstrap.rank() == 0) {
    second.fill(std::byte{7});
    const std::array out{to_rank_1(second)};
    transport.transfer(out, {}, options);
  }
  bootstrap.all_gather_bytes("", "the second message is there");
  if (bootstrap.rank() == 1) {
    EXPECT_THAT(second, ::testing::Each(std::byte{0}));
  }
}

}  // namespace
}  // namespace lockstep::comm
