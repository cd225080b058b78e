export { createSchedule, type Schedule, type ScheduleEntry, type ScheduleOptions } from "./create-schedule.js";
