// What a Mesh must do over any communicator.

#include <gmock/gmock.h>

#include "lockstep/comm/errors.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/parallel/mesh.hpp"
#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

using ::testing::HasSubstr;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MeshContract);

// Axes for a number of ranks: (2, n / 2) where n is even, else (1, n).
std::vector<MeshAxis> two_axes(int ranks) {
  const int data = ranks % 2 == 0 ? 2 : 1;
  return {{"data", data}, {"tensor", ranks / data}};
}

TEST_P(MeshContract, LaysRanksOutInRowMajorOrder) {
  run([](Communicator& world) {
    const Mesh mesh(share(world), two_axes(world.size()));
    const int tensor = mesh.size("tensor");
    EXPECT_EQ(mesh.size("data") * tensor, world.size());
    EXPECT_EQ(mesh.coordinate("data"), world.rank() / tensor);
    EXPECT_EQ(mesh.coordinate("tensor"), world.rank() % tensor);
    EXPECT_EQ(mesh.axes().size(), 2U);
    EXPECT_EQ(mesh.world().get(), &world);
  });
}

TEST_P(MeshContract, FormsTheGroupAlongEachAxis) {
  run([](Communicator& world) {
    const Mesh mesh(share(world), two_axes(world.size()));
    for (const MeshAxis& axis : mesh.axes()) {
      const CommunicatorPtr group = mesh.group(axis.name);
      EXPECT_EQ(group->size(), axis.size);
      EXPECT_EQ(group->rank(), mesh.coordinate(axis.name));
      // Its members are those at this rank's place along the other axis.
      const std::string other = axis.name == "data" ? "tensor" : "data";
      const auto all = comm::all_gather_bytes(*group, std::to_string(mesh.coordinate(other)));
      for (const std::string& place : all) EXPECT_EQ(place, std::to_string(mesh.coordinate(other)));
    }
  });
}

TEST_P(MeshContract, FormsGroupsAlongSeveralAxes) {
  run([](Communicator& world) {
    const Mesh mesh(share(world), {{"one", 1}, {"data", 1}, {"tensor", world.size()}});
    const CommunicatorPtr all = mesh.make_group({"tensor", "one"});
    EXPECT_EQ(all->size(), world.size());
    EXPECT_EQ(all->rank(), world.rank());
    EXPECT_EQ(mesh.make_group({"one", "data"})->size(), 1);
    EXPECT_THROW(mesh.make_group({"data", "data"}), InvalidArgument);
  });
}

TEST_P(MeshContract, NamesTheAxesThatThereAre) {
  run([](Communicator& world) {
    const Mesh mesh(share(world), two_axes(world.size()));
    const std::string message = message_of<InvalidArgument>([&] { mesh.group("model"); });
    EXPECT_THAT(message, HasSubstr("no axis is called \"model\""));
    EXPECT_THAT(message, HasSubstr("data "));
    EXPECT_THROW(mesh.size("model"), InvalidArgument);
    EXPECT_THROW(mesh.coordinate(""), InvalidArgument);
  });
}

TEST_P(MeshContract, RefusesAxesThatDoNotFitOnEveryRank) {
  run([](Communicator& world) {
    const auto refusal = [&](std::vector<MeshAxis> axes) {
      return message_of<InvalidArgument>([&] { Mesh(share(world), std::move(axes)); });
    };
    EXPECT_THAT(refusal({{"data", 2}, {"tensor", world.size()}}),
                HasSubstr("the axes data 2 x tensor " + std::to_string(world.size()) + " are for " +
                          std::to_string(2 * world.size()) + " ranks"));
    EXPECT_THAT(refusal({{"data", world.size()}, {"data", 1}}), HasSubstr("two axes are called"));
    EXPECT_THAT(refusal({{"data", world.size()}, {"", 1}}), HasSubstr("axis 1 has no name"));
    EXPECT_THAT(refusal({{"data", 0}}), HasSubstr("axis data has the size 0"));
    EXPECT_THAT(refusal({{"data", -world.size()}, {"tensor", -1}}), HasSubstr("has the size -"));
    if (world.size() > 1) {
      EXPECT_THAT(refusal({}), HasSubstr("the axes none are for 1 ranks"));
    }
  });
}

TEST_P(MeshContract, RefusesRanksWithOtherAxesOnEveryRank) {
  run([](Communicator& world) {
    if (world.size() == 1) return;
    const int last = world.size() - 1, ranks = world.size();
    const auto refusal = [&](const MeshAxis& common, const MeshAxis& lasts) {
      return message_of<comm::Mismatch>(
          [&] { Mesh(share(world), {world.rank() == last ? lasts : common}); });
    };
    const std::string n = std::to_string(ranks), on_last = " on rank " + std::to_string(last);
    EXPECT_THAT(refusal({"data", ranks}, {"tensor", ranks}),
                HasSubstr("data " + n + " on rank 0 but tensor " + n + on_last));
    // Also if the sizes of one rank alone could never be right.
    EXPECT_THAT(refusal({"data", ranks}, {"data", 7}), HasSubstr("but data 7" + on_last));
  });
}

TEST_P(MeshContract, RefusesGroupsAlongOtherAxesOnEveryRank) {
  run([](Communicator& world) {
    if (world.size() == 1) return;
    const Mesh mesh(share(world), two_axes(world.size()));
    const bool is_last = world.rank() == world.size() - 1;
    const auto refusal = [&](std::initializer_list<std::string_view> of_last) {
      return message_of<comm::Mismatch>([&] {
        if (is_last) mesh.make_group(of_last);
        if (!is_last) mesh.make_group({"data"});
      });
    };
    const std::string on_last = " on rank " + std::to_string(world.size() - 1);
    EXPECT_THAT(refusal({"tensor"}), HasSubstr("along data on rank 0 but tensor" + on_last));
    EXPECT_THAT(refusal({"data", "tensor"}), HasSubstr("but data, tensor" + on_last));
    EXPECT_THAT(refusal({"modle"}), HasSubstr("but modle" + on_last));
    EXPECT_EQ(mesh.make_group({"data", "tensor"})->size(), world.size());
  });
}

}  // namespace
}  // namespace lockstep::parallel::testing
