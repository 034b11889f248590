#include "backend/cuda/plan_failure.hpp"

#include <gtest/gtest.h>

namespace lockstep::backend {
namespace {

TEST(PlanFailure, OfAMissingEngineSendsCallersAnotherWay) {
  EXPECT_TRUE(lacks_engine(PlanFailure::graph, "no support for this head dimension"));
  EXPECT_TRUE(lacks_engine(PlanFailure::engines, "No valid engine configs for ConvFwd_"));
  EXPECT_TRUE(lacks_engine(PlanFailure::plans, "No valid execution plans built."));
  EXPECT_TRUE(lacks_engine(PlanFailure::call, "failed: CUDNN_STATUS_NOT_SUPPORTED_SHAPE"));
  EXPECT_TRUE(lacks_engine(PlanFailure::plans,
                           "Plan at index 0: CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED\n"
                           "Plan at index 1: CUDNN_STATUS_NOT_SUPPORTED"));
}

TEST(PlanFailure, OfAnythingElseIsAnError) {
  EXPECT_FALSE(lacks_engine(PlanFailure::call, "failed: CUDNN_STATUS_EXECUTION_FAILED"));
  EXPECT_FALSE(lacks_engine(PlanFailure::call, "failed: CUDNN_STATUS_BAD_PARAM"));
  EXPECT_FALSE(lacks_engine(PlanFailure::engines, "failed: CUDNN_STATUS_INTERNAL_ERROR"));
  EXPECT_FALSE(lacks_engine(PlanFailure::plans, "Plan at index 0: CUDNN_STATUS_ALLOC_FAILED"));
  EXPECT_FALSE(lacks_engine(PlanFailure::other, "Tensor 'x' strides not set"));
}

}  // namespace
}  // namespace lockstep::backend
