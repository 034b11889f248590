#include "simgpu/engine/options.hpp"

#include <cstdlib>
#include <stdexcept>

#include <gtest/gtest.h>

namespace simgpu {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(SimgpuOptions, GiveEachRankOfTheHostADeviceUnlessToldOtherwise) {
  const Variable local_size("OMPI_COMM_WORLD_LOCAL_SIZE", "4");
  EXPECT_EQ(Options::from_environment().devices, 4);
  const Variable devices("LOCKSTEP_SIM_DEVICES", "2");
  EXPECT_EQ(Options::from_environment().devices, 2);
}

TEST(SimgpuOptions, GiveNoMoreDevicesThanThereCanBe) {
  const Variable local_size("LOCAL_WORLD_SIZE", "64");
  EXPECT_EQ(Options::from_environment().devices, 16);
}

TEST(SimgpuOptions, RefuseValuesThatMeanNothing) {
  const Variable devices("LOCKSTEP_SIM_DEVICES", "17");
  EXPECT_THROW(Options::from_environment(), std::invalid_argument);
}

}  // namespace
}  // namespace simgpu
