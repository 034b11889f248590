#pragma once

/// @file
/// All of optim: optimizers, clipping and schedules.

#include "lockstep/optim/adafactor.hpp"
#include "lockstep/optim/adagrad.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/optim/adamax.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/decay_groups.hpp"
#include "lockstep/optim/lamb.hpp"
#include "lockstep/optim/lars.hpp"
#include "lockstep/optim/lion.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/optim/muon.hpp"
#include "lockstep/optim/nadam.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/parameter_list.hpp"
#include "lockstep/optim/plateau.hpp"
#include "lockstep/optim/radam.hpp"
#include "lockstep/optim/rmsprop.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/optim/state_format.hpp"
#include "lockstep/optim/weight_average.hpp"
