#pragma once

/// @file
/// All of optim: optimizers, clipping and schedules.

#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/parameter_list.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/sgd.hpp"
