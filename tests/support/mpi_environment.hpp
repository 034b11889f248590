#pragma once

#include <cstdlib>

#include <gtest/gtest.h>

namespace lockstep::testing {

/// What mpirun needs as root, in containers, and with more ranks than cores, for tests that start
/// jobs themselves.
class MpiEnvironment : public ::testing::Environment {
  void SetUp() override {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("OMP_WAIT_POLICY", "passive", 1);
  }
};
inline const auto* const mpi_environment = ::testing::AddGlobalTestEnvironment(new MpiEnvironment);

}  // namespace lockstep::testing
