export const kept: string = "types are removed";
