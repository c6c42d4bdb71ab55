// Style sheets go into the bundle by their import; they have no values.
declare module "*.css";
